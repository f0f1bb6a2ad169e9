from photon.config.errors import PhotonError as PhotonError
from photon.config.errors import UsageError as UsageError
from photon.library import Join as Join
from photon.library import JoinStopped as JoinStopped
from photon.library import Output as Output
from photon.library import Record as Record
from photon.library import Records as Records
from photon.library import compute as compute
from photon.library.front import Pairs as Pairs
from photon.library.front import join as join
from photon.library.front import read as read

__version__: str
