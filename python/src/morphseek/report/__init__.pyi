from .index import IndexRow as IndexRow, write_index as write_index
from .page import write_report as write_report
from .places import worst_places as worst_places
