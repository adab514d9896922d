"""One small file for the tables of a source; `TABLES` has them in the order of the page."""

from pipelines.proof.problems import Table
from pipelines.proof.tables import argo, colorado, jura, meuse, satellite, sic97, sic2004

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        *(jura.TABLE, meuse.TABLE, sic97.TABLE, sic2004.TABLE, sic2004.JOKER),
        *(colorado.TABLE, argo.TABLE, satellite.TABLE),
    )
}
