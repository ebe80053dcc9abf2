from .result import (
    Iteration as Iteration,
    Subject as Subject,
    Template as Template,
    load as load,
    outputs as outputs,
)
from .run import build_template as build_template
