"""What a forward computes from what, as a trace or an example shows it, to recognise activations that are no hidden units by themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import Tensor, fx, nn
from torch.nn.utils.parametrize import ParametrizationList

from mollifier.activations import function_name
from mollifier.convert import _reasons as reasons
from mollifier.convert._structure import has_tangent

# By the names of functions, methods and operators: x * y calls mul, 2 * x calls rmul, and x *= y calls imul.
_PRODUCTS = {"mul", "rmul", "imul", "multiply"}
_ELEMENTWISE = {
    *(f"{prefix}{name}" for name in ("add", "sub", "mul", "div", "truediv", "pow") for prefix in ("", "r", "i")),
    *("subtract", "multiply", "divide", "neg", "square", "sqrt", "rsqrt", "reciprocal", "abs", "exp", "log", "erf"),
    *("clamp", "clamp_min", "clamp_max", "clip", "float", "double", "half", "to", "type_as", "clone", "contiguous"),
}
_NEAR = 50  # values to look at: the elementwise operations of a loop over time may be thousands


@dataclass(eq=False)
class Value:
    """One value: the function that computes it, and the values that this function takes.

    Attributes:
        function: The name of the function.
        inputs: What it takes. Numbers are left out.
        activation: Whether the function is an activation.
        sources: Where it comes from in the end: "parameter", "buffer", "constant" or "data".
        users: What takes it.
    """

    function: str = ""
    inputs: tuple[Value, ...] = ()
    activation: bool = False
    sources: frozenset[str] = frozenset({"data"})
    users: list[Value] = field(default_factory=list)

    @property
    def constant(self) -> bool:
        """Return whether it does not depend on the data."""
        return "data" not in self.sources


def leaf(source: str) -> Value:
    """Return a value that nothing in the forward computes."""
    return Value(sources=frozenset({source}))


def computed(function: object, inputs: Iterable[Value], activation: bool) -> Value:
    """Return what a function computes from these values; ``function`` may be its name."""
    taken = tuple(inputs)
    sources = frozenset[str]().union(*(value.sources for value in taken)) or frozenset({"data"})
    value = Value(str(getattr(function, "__name__", function)).strip("_"), taken, activation, sources)
    for each in taken:
        each.users.append(value)
    return value


def refusal(value: Value) -> str:
    """Return the reason why an activation that computes this value is no hidden unit by itself, or ""."""
    if value.sources <= {"parameter", "buffer"}:
        return reasons.NO_DATA
    return reasons.PRODUCT if _multiplies_its_input(value) else ""


def _multiplies_its_input(activation: Value) -> bool:
    """Return whether the result, possibly rescaled, is multiplied by something that the activation takes elementwise, as in x * sigmoid(x)."""
    taken = _elementwise(activation.inputs, through_activations=True)
    pending = [activation]
    for result in pending:
        for user in dict.fromkeys(result.users):
            others = [value for value in user.inputs if value is not result and not value.constant]
            if user.function in _PRODUCTS and taken & _elementwise(others):
                return True
            if not others and (user.function in _ELEMENTWISE or user.activation):
                pending.append(user)
    return False


def _elementwise(values: Iterable[Value], through_activations: bool = False) -> set[Value]:
    """Return these values and the nearest of those that they are computed from number by number, without constants."""
    found: dict[Value, None] = dict.fromkeys(value for value in values if not value.constant)
    for value in (pending := list(found)):
        if len(found) < _NEAR and (value.function in _ELEMENTWISE or (through_activations and value.activation)):
            further = [each for each in value.inputs if not each.constant and each not in found]
            found.update(dict.fromkeys(further))
            pending += further
    return set(found)


def values_of(graph: fx.Graph, module: nn.Module) -> dict[fx.Node, Value]:
    """Return the values that a trace of a module's forward shows."""
    sources = {name: "parameter" for name, _ in module.named_parameters(remove_duplicate=False)}
    sources |= {name: "buffer" for name, _ in module.named_buffers(remove_duplicate=False)}
    found: dict[fx.Node, Value] = {}
    for node in graph.nodes:
        if node.op == "get_attr":
            found[node] = leaf(sources.get(str(node.target), "constant"))
        elif node.op == "placeholder":
            found[node] = leaf("data")
        elif node.op == "call_module" and isinstance(module.get_submodule(str(node.target)), ParametrizationList):
            found[node] = leaf("parameter")
        else:
            activation = _is_activation(node, module)
            found[node] = computed(node.target, (found[each] for each in node.all_input_nodes), activation)
    return found


def _is_activation(node: fx.Node, module: nn.Module) -> bool:
    if node.op == "call_module":
        return has_tangent(module.get_submodule(str(node.target)))
    target = getattr(Tensor, str(node.target), None) if node.op == "call_method" else node.target
    try:
        return function_name(target) is not None
    except TypeError:  # unhashable
        return False
