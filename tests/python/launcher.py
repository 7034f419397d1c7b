"""Starts the ranks of a job, as torchrun would: processes of one host with gloo between them. They are
forked from a server that has imported torch, so that a restart takes no seconds."""

import multiprocessing
import os
import pathlib
import sys
import traceback

_HERE = pathlib.Path(__file__).parent
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["conftest", "preload"])


def _begin(function, rank, world, rendezvous, report, arguments):
    import torch

    torch.set_num_threads(1)
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), str(world)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world
    )
    try:
        result = function(rank, *arguments)
    except BaseException:
        report.send((False, traceback.format_exc()))
        os._exit(1)  # as a rank that others wait for in a collective: it does not wait for them
    report.send((True, result))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


class Job:
    """Running ranks. `function(rank, *arguments)` is found by its module, in each rank."""

    _count = 0

    def __init__(self, scratch, world, function, *arguments):
        Job._count += 1
        rendezvous = scratch / f"rendezvous{Job._count}"
        sys.path.insert(0, os.fspath(_HERE))
        self._pipes, self.processes = [], []
        for rank in range(world):
            ours, theirs = _CONTEXT.Pipe(duplex=False)
            process = _CONTEXT.Process(
                target=_begin, args=(function, rank, world, rendezvous, theirs, arguments)
            )
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self.processes.append(process)

    def wait(self, timeout=120.0):
        """Until all ranks have ended, or one failed: then the others are ended, too. Returns what each
        rank returned, its traceback, or None if it was killed; and whether all went well."""
        waiting = {process.sentinel: process for process in self.processes}
        while waiting:
            ready = multiprocessing.connection.wait(waiting, timeout)
            failed = not ready
            for sentinel in ready:
                failed = waiting.pop(sentinel).exitcode != 0 or failed
            if failed:
                self.end()
                break
        results = [self._result(pipe) for pipe in self._pipes]
        return results, all(process.exitcode == 0 for process in self.processes)

    def end(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()

    @staticmethod
    def _result(pipe):
        try:
            return pipe.recv()[1] if pipe.poll() else None
        except EOFError:
            return None


def run_ranks(scratch, world, function, *arguments):
    """What function(rank, *arguments) returns on each of `world` ranks; all must end well."""
    results, well = Job(scratch, world, function, *arguments).wait()
    assert well, "\n".join(str(result) for result in results)
    return results
