"""The slots of an optimizer: which parameter of which group is which tensor of the store."""

import torch

from momentd.torch.tensors import TYPES, Slot, gradient_of, local

DEFAULT_MEMBER = "opt0_0"


class Gradients:
    """The gradients of a step by tensor: kept alive until it is over."""

    def __init__(self, count):
        self.addresses = [None] * count
        self.types = [0] * count
        self.participants = []
        self._held = []

    def take(self, index, gradient):
        self._held.append(gradient)
        self.addresses[index] = gradient.data_ptr() or None
        self.types[index] = TYPES[gradient.dtype]
        self.participants.append(index)


def _contiguous(parameter, name):
    """The gradient's local part, in one piece."""
    if parameter.grad.is_sparse:
        raise RuntimeError(
            "Adam does not support sparse gradients, please consider SparseAdam instead"
        )
    here = gradient_of(parameter)
    if here.dtype not in TYPES or here.device != local(parameter).device:
        raise RuntimeError(
            f"the gradient of {name} is {here.dtype} on {here.device}; momentd takes float32, "
            f"bfloat16 and float16 on {local(parameter).device}, where the parameter is"
        )
    return here if here.is_contiguous() else here.contiguous()


class Slots:
    """In the order of the store's tensors. A slot is made when a parameter is seen to require a
    gradient, and stays."""

    def __init__(self):
        self._slots = []
        self._index = {}  # by id of the parameter
        self._frozen = set()  # ids of parameters that had no slot when they were last looked at

    def __len__(self):
        return len(self._slots)

    def __iter__(self):
        return iter(self._slots)

    def __getitem__(self, index):
        return self._slots[index]

    def copy(self):
        """Another collection of the same slots, to add to."""
        slots = Slots()
        slots._slots = list(self._slots)
        slots._index = dict(self._index)
        slots._frozen = set(self._frozen)
        return slots

    def index(self, parameter):
        """The number of the parameter's tensor; None if it has none."""
        return self._index.get(id(parameter))

    def members(self):
        return sorted({slot.member for slot in self._slots}) or [DEFAULT_MEMBER]

    def collect(self, groups, names, wanted=()):
        """Gives every parameter that requires a gradient a slot, and those that are wanted (ids);
        those that have one keep theirs."""
        for group, group_names in zip(groups, names):
            member = group.get("member", DEFAULT_MEMBER)
            for parameter, name in zip(group["params"], group_names):
                if id(parameter) in self._index:
                    continue
                if not (parameter.requires_grad or id(parameter) in wanted):
                    self._frozen.add(id(parameter))
                    continue
                slot = Slot(parameter, name, member)
                self._frozen.discard(id(parameter))
                self._index[id(parameter)] = len(self._slots)
                self._slots.append(slot)

    def locate(self):
        """Finds all parameters; True if one of them is not where it was."""
        return any([slot.locate() for slot in self._slots])

    def lose(self):
        """The daemon knows none of the addresses any more."""
        for slot in self._slots:
            slot.address = None

    def addresses(self):
        return [slot.address for slot in self._slots]

    def changed(self):
        return [index for index, slot in enumerate(self._slots) if slot.changed()]

    def before_reading(self, indices):
        """The daemon is about to read these parameters: what they are now is what it knows."""
        for index in indices:
            self._slots[index].before_reading()
            self._slots[index].note()

    def any_unfrozen(self, groups):
        """A parameter without a slot has a gradient. Raises RuntimeError for one that took another's
        place."""
        unfrozen = False
        for group in groups:
            for parameter in group["params"]:
                if parameter.grad is None or id(parameter) in self._index:
                    continue
                if id(parameter) not in self._frozen:
                    raise RuntimeError(
                        "a parameter group holds a parameter that this optimizer does not know; "
                        "parameters can be swapped until the first step, and added by "
                        "add_param_group()"
                    )
                unfrozen = True
        return unfrozen

    def gradients(self, groups):
        gradients = Gradients(len(self._slots))
        for group in groups:
            for parameter in group["params"]:
                index = self._index.get(id(parameter))
                if index is not None and parameter.grad is not None:
                    name = self._slots[index].name
                    gradients.take(index, _contiguous(parameter, name))
        return gradients

    def of_group(self, group):
        """The tensors of a group."""
        indices = [self._index.get(id(parameter)) for parameter in group["params"]]
        return [index for index in indices if index is not None]

    def indices(self, parameters):
        """The tensors of these parameters; all with None. Raises ValueError for a stranger."""
        if parameters is None:
            return list(range(len(self._slots)))
        unknown = [p for p in parameters if id(p) not in self._index]
        if unknown:
            raise ValueError(
                f"a parameter of shape {tuple(unknown[0].shape)} has no state in this optimizer"
            )
        return [self._index[id(parameter)] for parameter in parameters]
