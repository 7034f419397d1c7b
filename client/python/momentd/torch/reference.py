"""state_dict(reference=True): which state is meant, in place of the state."""

from momentd.errors import Error


def refer(session):
    """What names the state of the last step. It is committed, so that it outlives the process."""
    session.make_ready()
    commit, options = session.store.flush(), session.options
    return {
        "store": session.store.info().store_uuid,
        "job": options.job,
        "role": options.role,
        "rank": options.rank,
        "sequence": commit.sequence,
        "commit": commit.id,
    }


def go_to(session, reference):
    """The store stands at the state that is meant, and the parameters are those of it.

    Raises ValueError for the state of another store, and for one that is gone: a store keeps its
    last commits alone.
    """
    _open(session)
    store, meant = session.store, reference["store"]
    if store.info().store_uuid != meant:
        name = "job {job!r}, role {role!r}, rank {rank}".format(**reference)
        raise ValueError(
            f"the loaded state dict refers to the store {meant} ({name}); this optimizer has "
            f"{store.info().store_uuid}"
        )
    sequence = reference["sequence"]
    if session.ready and _stands_at(store.flush(), reference):
        return
    commits = store.commits()
    listed = [commit for commit in commits if commit.sequence == sequence]
    if listed and not _stands_at(listed[0], reference):
        raise ValueError(_gone(reference, commits))
    newest = listed and listed[0] is commits[0] and not session.ready
    try:
        session.resume(None if newest else sequence, None)
    except Error as error:
        if error.code != "NOT_FOUND":
            raise
        raise ValueError(_gone(reference, commits)) from error


def _open(session):
    """A reference is the choice to go on with what is there."""
    options = session.options
    if options.resume == "never":
        raise ValueError(
            "the loaded state dict refers to the state of an earlier run, and resume='never' starts "
            "over: pass another choice"
        )
    chosen = options.resume
    options.resume = chosen or "must"
    try:
        session.open()
    finally:
        options.resume = chosen


def _stands_at(commit, reference):
    return (commit.sequence, commit.id) == (reference["sequence"], reference["commit"])


def _gone(reference, commits):
    live = ", ".join(f"{commit.sequence} (commit {commit.id})" for commit in commits)
    return (
        f"the loaded state dict refers to sequence {reference['sequence']} (commit "
        f"{reference['commit']}), which is gone: a store keeps its last commits alone, and had "
        f"{live or 'none'} when it was opened"
    )
