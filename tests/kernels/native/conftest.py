"""The tests of the native code are there where it is; test_backend.py, one floor up, says where it has to be."""

from mollifier import kernels

collect_ignore_glob = [] if kernels.info().backend == "native" else ["test_*.py"]
