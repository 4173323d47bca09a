"""The tests of the native code are there where it is; test_backend.py says where it has to be."""

from mollifier import ops

collect_ignore_glob = [] if ops.info().backend == "native" else ["test_[!b]*.py"]
