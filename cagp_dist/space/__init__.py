"""Where fields lie: on the globe or in a plane, which know their distances, units, blocks and cells."""

from cagp_dist.space.interface import Region, Space
from cagp_dist.space.moved import moved
from cagp_dist.space.plane import Plane, plane_of
from cagp_dist.space.sphere import SPHERE, Sphere
from cagp_dist.space.systems import CRSLike

__all__ = ["SPHERE", "CRSLike", "Plane", "Region", "Space", "Sphere", "moved", "plane_of"]
