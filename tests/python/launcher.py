"""Starts the ranks of a job, as torchrun would: processes of one host with gloo between them. They
are forked from a server that has imported torch, so that a restart takes no seconds."""

import multiprocessing
import multiprocessing.connection
import os
import pathlib
import pickle
import sys
import traceback

_HERE = pathlib.Path(__file__).parent
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["conftest", "preload"])


def _begin(function, rank, world, directory, arguments):
    import torch

    torch.set_num_threads(1)
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), str(world)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{directory}/rendezvous", rank=rank, world_size=world
    )
    result = directory / f"result{rank}"
    try:
        result.write_bytes(pickle.dumps(function(rank, *arguments)))
    except BaseException:
        result.write_bytes(pickle.dumps(traceback.format_exc()))
        os._exit(1)  # as a rank that others wait for in a collective: it does not wait for them
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


class Job:
    """Running ranks. `function(rank, *arguments)` is found by its module, in each rank."""

    _count = 0

    def __init__(self, scratch, world, function, *arguments):
        Job._count += 1
        self._directory = scratch / f"job{Job._count}"
        self._directory.mkdir()
        sys.path.insert(0, os.fspath(_HERE))
        self.processes = [
            _CONTEXT.Process(
                target=_begin, args=(function, rank, world, self._directory, arguments)
            )
            for rank in range(world)
        ]
        for process in self.processes:
            process.start()

    def wait(self, timeout=120.0):
        """Until all ranks have ended, or one failed: then the others are ended, too. Returns what
        each rank returned, its traceback, or None if it was killed; and whether all went well."""
        waiting = {process.sentinel: process for process in self.processes}
        while waiting:
            ready = multiprocessing.connection.wait(waiting, timeout)
            failed = not ready
            for sentinel in ready:
                failed = waiting.pop(sentinel).exitcode != 0 or failed
            if failed:
                self.end()
                break
        results = [self._result(rank) for rank in range(len(self.processes))]
        return results, all(process.exitcode == 0 for process in self.processes)

    def end(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()

    def _result(self, rank):
        try:
            return pickle.loads((self._directory / f"result{rank}").read_bytes())
        except (OSError, EOFError, pickle.UnpicklingError):
            return None


def run_ranks(scratch, world, function, *arguments):
    """What function(rank, *arguments) returns on each of `world` ranks; all must end well."""
    job = Job(scratch, world, function, *arguments)
    results, well = job.wait()
    exits = [process.exitcode for process in job.processes]
    assert well, "\n".join([f"the ranks exited with {exits}", *map(str, results)])
    return results
