"""One small file for each public table; `TABLES` has them in the order of the page."""

from pipelines.proof.problems import Table
from pipelines.proof.tables import argo, colorado, jura, meuse, satellite, sic97, sic2004

TABLES: dict[str, Table] = {
    module.TABLE.name: module.TABLE for module in (jura, meuse, sic97, sic2004, colorado, argo, satellite)
}
