"""Whole sequences of a mollified LSTM or GRU layer, one direction, in torch's own operations with a backward written by hand.

The loops hold what depends on the step before, in buffers made once; all derivatives are taken for all steps together.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mollifier.kernels._eager_gates import Candidate, Held, noise, order
from mollifier.kernels._recurrent import Cell
from mollifier.kernels._unit import once

LSTM_PARTS, GRU_PARTS = ("inverse", "rest", None, "one"), ("one", "rest", None)


def eager_lstm_layer(
    x: Tensor, state: tuple[Tensor, ...], w: Tensor, a: Tensor | None, time: Tensor | None, cell: Cell
) -> Any:
    """(W x + b of all rows, (h, c), w_hh, a (2, hidden), 1/t a row) → rows of h, final h, final c. x is overwritten."""
    return _LSTM.apply(x, *state, w, a, time, cell, torch.is_grad_enabled())  # type: ignore[no-untyped-call]


def eager_gru_layer(
    x: Tensor,
    state: tuple[Tensor, ...],
    w: Tensor,
    b: Tensor | None,
    a: Tensor | None,
    time: Tensor | None,
    cell: Cell,
) -> Any:
    """(W x + b of all rows, (h,), w_hh, b_hh, a (1, hidden), 1/t a row) → rows of h, final h. x is overwritten."""
    return _GRU.apply(x, *state, w, b, a, time, cell, torch.is_grad_enabled())  # type: ignore[no-untyped-call]


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        h0: Tensor,
        c0: Tensor,
        w: Tensor,
        a: Tensor | None,
        time: Tensor | None,
        cell: Cell,
        train: bool,
    ) -> Any:
        hidden, sizes = h0.shape[1], cell.sizes
        z = x.detach().contiguous().view(len(x), 4, hidden)
        # noise of i, f, g, o, and of the activation of c
        xi = noise(z, 5, cell)
        of_g = None if xi is None else xi[:, 2].clone()  # its place is taken below
        g = Candidate(None if a is None else a[0], of_g, z, cell)
        y = Candidate(None if a is None else a[1], None if xi is None else xi[:, 4], z, cell)
        held = Held(z, LSTM_PARTS, None if xi is None else xi[:, :4], time, cell)
        values, rows, cells = torch.empty_like(z), z.new_empty(len(x), hidden), z.new_empty(len(x), hidden)
        steps = list(
            zip(
                torch.split(z, sizes),
                torch.split(values, sizes),
                torch.split(rows, sizes),
                torch.split(cells, sizes),
                held.steps(),
                strict=True,
            )
        )
        h, c, wt = h0.clone(), c0.clone(), w.t()
        one, two = torch.empty_like(h), torch.empty_like(h)
        for t in order(cell):
            (zt, vt, out, ct, pull), n = steps[t], sizes[t]
            hn, cn, buffer, sigmoid = (h, c, one, two) if n == len(h) else (h[:n], c[:n], one[:n], two[:n])
            zt.view(n, -1).addmm_(hn, wt)
            held.values(zt, *pull, vt)
            i, f, s, o = vt.unbind(1)
            cn.mul_(f).addcmul_(i, g.value(t, zt[:, 2], s, buffer))
            ct.copy_(cn)
            torch.mul(cn, 2.0, out=sigmoid).sigmoid_()
            torch.mul(o, y.value(t, cn, sigmoid, buffer), out=hn)
            out.copy_(hn)
        if train and any(ctx.needs_input_grad):
            # over the pre-activations: the derivatives of c by i, f and g, and of h by o
            i, f, _, o = values.unbind(1)
            value, by_x, by_ga = g.all(z[:, 2])
            held.slope(0, i, z[:, 0]).mul_(value)
            held.slope(1, f, z[:, 1]).mul_(cell.before(c0, cells))
            torch.mul(i, by_x, out=z[:, 2])
            value, by_c, by_ya = y.all(cells)
            held.slope(3, o, z[:, 3]).mul_(value)
            by_as = [] if by_ga is None or by_ya is None or a is None else [by_ga.mul_(i), by_ya.mul_(o), a.sign()]
            ctx.save_for_backward(z, f.clone(), by_c.mul_(o), w, h0, rows, *by_as)
        ctx.cell = cell
        return rows, h, c

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor, grad_h: Tensor, grad_c: Tensor) -> tuple[Tensor | None, ...]:
        once()
        slopes, f, by_c, w, h0, rows, *by_as = ctx.saved_tensors
        cell, sizes = ctx.cell, ctx.cell.sizes
        gz, dh, dc = torch.empty_like(slopes), torch.empty_like(f), torch.empty_like(f)
        gh, gc = grad_h.clone(), grad_c.clone()
        steps = list(zip(*(torch.split(each, sizes) for each in (slopes, f, by_c, grad_out, gz, dh, dc)), strict=True))
        for t in reversed(order(cell)):
            (slope, ft, ct, up, g, dht, dct), n = steps[t], sizes[t]
            ghn, gcn = (gh, gc) if n == len(gh) else (gh[:n], gc[:n])
            torch.add(ghn, up, out=dht)
            torch.addcmul(gcn, dht, ct, out=dct)
            torch.mul(slope[:, :3], dct.unsqueeze(1), out=g[:, :3])
            torch.mul(slope[:, 3], dht, out=g[:, 3])
            torch.mul(dct, ft, out=gcn)
            torch.mm(g.view(n, -1), w, out=ghn)
        flat, grad_a = gz.view(len(gz), -1), None
        if by_as:
            grad_a = torch.stack([dc.mul_(by_as[0]).sum(0), dh.mul_(by_as[1]).sum(0)]).mul_(by_as[2])
        return flat, gh, gc, flat.t() @ cell.before(h0, rows), grad_a, None, None, None


class _GRU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        h0: Tensor,
        w: Tensor,
        b: Tensor | None,
        a: Tensor | None,
        time: Tensor | None,
        cell: Cell,
        train: bool,
    ) -> Any:
        hidden, sizes = h0.shape[1], cell.sizes
        z = x.detach().contiguous().view(len(x), 3, hidden)
        xi = noise(z, 3, cell)
        n_of = Candidate(None if a is None else a[0], None if xi is None else xi[:, 2].clone(), z, cell)
        held = Held(z, GRU_PARTS, xi, time, cell)
        values, rows = z.new_empty(len(x), 2, hidden), z.new_empty(len(x), hidden)
        hh, news = z.new_empty(sizes[0], 3, hidden), torch.empty_like(rows)  # of one step; its last part of all
        steps = list(zip(*(torch.split(each, sizes) for each in (z, news, values, rows)), held.steps(), strict=True))
        h, wt, bias = h0.clone(), w.t(), w.new_zeros(1) if b is None else b.detach()
        one, two = torch.empty_like(h), torch.empty_like(h)
        for t in order(cell):
            (zt, nt, vt, out, (aim, weight)), n = steps[t], sizes[t]
            hn, buffer, sigmoid = (h, one, two) if n == len(h) else (h[:n], one[:n], two[:n])
            ht = hh[:n]
            torch.addmm(bias, hn, wt, out=ht.view(n, -1))
            nt.copy_(ht[:, 2])
            gates = zt[:, :2].add_(ht[:, :2])
            held.values(gates, aim[:, :2], weight[:, :2], vt)
            r, u = vt.unbind(1)
            new = zt[:, 2].addcmul_(r, nt)
            torch.mul(new, 2.0, out=sigmoid).sigmoid_()
            torch.lerp(n_of.value(t, new, sigmoid, buffer), hn, u, out=out)
            hn.copy_(out)
        if train and any(ctx.needs_input_grad):
            # over the pre-activations: the derivatives of h by them
            r, u = values.unbind(1)
            value, by_x, by_a = n_of.all(z[:, 2])
            rest = 1.0 - u
            last = torch.mul(rest, by_x, out=z[:, 2])
            held.slope(0, r, z[:, 0]).mul_(last).mul_(news)
            held.slope(1, u, z[:, 1]).mul_(cell.before(h0, rows).sub_(value))
            by_as = [] if by_a is None or a is None else [by_a.mul_(rest), a.sign()]
            ctx.save_for_backward(z, values, w, h0, rows, *by_as)
        ctx.rest = cell, b is not None
        return rows, h

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor, grad_h: Tensor) -> tuple[Tensor | None, ...]:
        once()
        slopes, values, w, h0, rows, *by_a = ctx.saved_tensors
        (cell, biased), gh = ctx.rest, grad_h.clone()
        gz, dh = torch.empty_like(slopes), torch.empty_like(rows)
        ghh = torch.empty_like(slopes)
        steps = list(
            zip(*(torch.split(each, cell.sizes) for each in (slopes, values, grad_out, gz, ghh, dh)), strict=True)
        )
        for t in reversed(order(cell)):
            (slope, vt, up, g, g_hh, dht), n = steps[t], cell.sizes[t]
            ghn = gh if n == len(gh) else gh[:n]
            torch.add(ghn, up, out=dht)
            torch.mul(slope, dht.unsqueeze(1), out=g)
            g_hh.copy_(g)
            g_hh[:, 2].mul_(vt[:, 0])
            torch.mul(dht, vt[:, 1], out=ghn)
            ghn.addmm_(g_hh.view(n, -1), w)
        flat = ghh.view(len(ghh), -1)
        grad_a = dh.mul_(by_a[0]).sum(0, keepdim=True).mul_(by_a[1]) if by_a else None
        grad_w, grad_b = flat.t() @ cell.before(h0, rows), flat.sum(0) if biased else None
        return gz.view(len(gz), -1), gh, grad_w, grad_b, grad_a, None, None, None
