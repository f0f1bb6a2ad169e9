"""Addresses that hold a password."""

from __future__ import annotations

import pytest

from photon.config.errors import UsageError
from photon.config.passwords import check_password, holds_password

HELD = [
    "postgresql://u:P@db/shop",
    "postgres://u:p%40q@db:5432/shop",
    "postgresql://u:@db/shop",
    "POSTGRESQL://u:P@db",
    "postgresql://u:a@b@db/shop",
    "postgresql://db/shop?user=u&password=P",
    "postgresql://db/shop?password=P",
    "host=db password=P",
    "host=db password = 'a b'",
    "host=db sslpassword=P",
]
FREE = [
    "postgresql://u@db:5432/shop",
    "postgresql://db:5432/shop",
    "postgresql:///shop?passfile=/home/u/.pgpass",
    "host=db user=u passfile=/home/u/.pgpass",
    "service=shop",
    "s3://lake/a:b@c",
    "kafka://k1:9092,k2:9092/joined",
]


@pytest.mark.parametrize("address", HELD)
def test_a_password_is_found_and_not_repeated(address: str) -> None:
    assert holds_password(address)
    with pytest.raises(UsageError, match=r"^--into: contains a password, which everybody") as refused:
        check_password("--into", address)
    assert "PGPASSWORD" in str(refused.value)
    assert address not in str(refused.value)


@pytest.mark.parametrize("address", FREE)
def test_other_addresses_are_taken(address: str) -> None:
    assert not holds_password(address)
    check_password("--into", address)
