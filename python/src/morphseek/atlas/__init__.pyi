from .result import (
    Iteration as Iteration,
    Subject as Subject,
    Template as Template,
    load as load,
    outputs as outputs,
)
from .run import template as template
