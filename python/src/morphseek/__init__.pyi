from . import batch as batch, errors as errors, io as io, phantom as phantom, report as report
from ._core import devices as devices
from .evaluation import evaluate as evaluate
from .registration import (
    Progress as Progress,
    RegistrationResult as RegistrationResult,
    load as load,
    register as register,
)
from .transform import DenseTransform as DenseTransform
from .verdict import Verdict as Verdict

__version__: str
