"""Loads momentd, torch, grpcio, protobuf and onnx, then has each do what needs its own machine code.

    together.py <socket of momentd> <job> <package>...                in the order of the arguments
    together.py --fork <socket of momentd> <job> <package>...         and uses them in a forked child
    together.py --every-order <socket of momentd> <job> <package>...  in each order there is

Prints a line for each process that has done its work.
"""

import ctypes
import os
import sys
import traceback


def load_momentd():
    from momentd import _library

    _library.load()


def load_torch():
    import torch  # noqa: F401


def load_grpcio():
    import grpc  # noqa: F401


def load_protobuf():
    from google.protobuf.internal import api_implementation

    assert api_implementation.Type() == "upb", api_implementation.Type()


def load_onnx():
    import onnx  # noqa: F401


def use_torch():
    import torch

    weights = torch.eye(8, requires_grad=True)
    (weights @ torch.arange(8.0)).sum().backward()
    assert torch.equal(weights.grad[3], torch.arange(8.0))


def use_grpcio():
    """A call to a server in this process, over TCP."""
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    class Reverse(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_unary_rpc_method_handler(lambda request, context: request[::-1])

    server = grpc.server(ThreadPoolExecutor(1), handlers=[Reverse()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert channel.unary_unary("/test.Reverse/Call")(b"moment", timeout=60) == b"tnemom"
    server.stop(None).wait()


def use_protobuf():
    from google.protobuf import descriptor_pb2, struct_pb2

    message = struct_pb2.Struct()
    message.update({"lr": 0.25, "groups": [1, {"name": "decay"}]})
    assert struct_pb2.Struct.FromString(message.SerializeToString()) == message
    file = descriptor_pb2.FileDescriptorProto.FromString(struct_pb2.DESCRIPTOR.serialized_pb)
    assert file.message_type[0].name == "Struct"


def use_onnx():
    import onnx
    from onnx import TensorProto, helper

    node = helper.make_node("MatMul", ["a", "b"], ["c"])
    inputs = [
        helper.make_tensor_value_info("a", TensorProto.FLOAT, [2, 3]),
        helper.make_tensor_value_info("b", TensorProto.FLOAT, [3, 5]),
    ]
    output = helper.make_tensor_value_info("c", TensorProto.FLOAT, None)
    model = helper.make_model(helper.make_graph([node], "matmul", inputs, [output]))
    inferred = onnx.shape_inference.infer_shapes(onnx.load_from_string(model.SerializeToString()))
    onnx.checker.check_model(inferred)
    shape = inferred.graph.output[0].type.tensor_type.shape
    assert [dimension.dim_value for dimension in shape.dim] == [2, 5]


class Stepping:
    """A store of one tensor of four elements, and what AdamW makes of it."""

    def __init__(self, socket, job):
        import momentd
        from momentd import store

        self.parameters = (ctypes.c_float * 4)(1.0, 2.0, -3.0, 4.0)
        self.gradients = (ctypes.c_float * 4)(0.5, -0.5, 0.5, 0.5)
        self.group = store.Group([0], lr=0.125, weight_decay=0.0)
        tensor = store.Tensor("weight", [4], store.c.FLOAT32)
        self.store = momentd.Store(store.Options(job=job, socket=socket, tensors=[tensor]))
        self.store.attach([ctypes.addressof(self.parameters)])
        self.store.refresh_all()

    def step(self):
        gradients = [ctypes.addressof(self.gradients)]
        return self.store.step([self.group], gradients, [1], [0]).sequence

    def check(self):
        """With equal gradients each of Adam's steps is lr long."""
        moved = 0.125 * self.step()
        expected = (1.0 - moved, 2.0 + moved, -3.0 - moved, 4.0 - moved)
        for found, wanted in zip(self.parameters, expected):
            assert abs(found - wanted) < 1e-5, (list(self.parameters), expected)

    def is_refused(self):
        import momentd

        try:
            self.step()
        except momentd.ForkedError:
            return True
        return False


def use_all(socket, job, packages, fork=False):
    """Uses the packages in the order in which they were loaded, momentd at the end once more."""
    stepping = None
    for package in packages:
        if package == "momentd":
            stepping = Stepping(socket, job)
            stepping.check()
        else:
            globals()[f"use_{package}"]()
    if fork:
        child = forked(lambda: use_in_child(stepping))
        assert child == 0
    stepping.check()
    stepping.store.close()
    print(*packages, flush=True)


def use_in_child(stepping):
    """A forked child may use the other packages, not momentd."""
    use_protobuf()
    use_onnx()
    use_torch()
    assert stepping.is_refused()


def forked(function):
    """The exit status of a forked child that calls `function`: 0 unless that raises."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            function()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def in_every_order(socket, job, loaded, remaining):
    """A process for each order; those that begin alike share the process that loads the beginning."""
    if not remaining:
        use_all(socket, f"{job}-{'-'.join(loaded)}", loaded)
        return
    for package in remaining:
        rest = [other for other in remaining if other != package]

        def load_and_go_on():
            globals()[f"load_{package}"]()
            in_every_order(socket, job, [*loaded, package], rest)

        status = forked(load_and_go_on)
        assert status == 0, f"{' '.join([*loaded, package])}: ended with {status}"


def main():
    option = sys.argv[1] if sys.argv[1].startswith("--") else None
    socket, job, *packages = sys.argv[2:] if option else sys.argv[1:]
    if option == "--every-order":
        in_every_order(socket, job, [], packages)
        return
    for package in packages:
        globals()[f"load_{package}"]()
    use_all(socket, job, packages, fork=option == "--fork")


main()
