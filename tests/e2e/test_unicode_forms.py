"""Names that differ in their Unicode form alone (NFC as Windows and Linux type them, NFD as Macs do) are one, through every network
door, in a share that normalizes."""

import unicodedata

import pytest

from conftest import make
from nfs3 import EXIST, GUARDED, Nfs3, NfsError
from test_smb import logged_in, smb
from test_webdav import Dav

PLAIN = "Café Müller 각"
NFC, NFD = (unicodedata.normalize(form, PLAIN) for form in ("NFC", "NFD"))
FORMS = [(NFC, NFD), (NFD, NFC)]


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    daemon = make(tmp_path_factory.mktemp("forms"), extra=["--squash", "none", "--webdav", "127.0.0.1:0"])
    daemon.start()
    yield daemon
    assert daemon.stop() == 0


@pytest.fixture
def nfs(house):
    with Nfs3.mount("127.0.0.1", house.nfs_port, house.export) as nfs:
        yield nfs


def names(nfs, folder):
    return sorted(entry.name.decode() for entry in nfs.list(folder))


@pytest.mark.parametrize("stored, asked", FORMS)
def test_either_form_finds_the_file_through_every_door(house, nfs, folder, stored, asked):
    top = f"found-{'nfd' if stored == NFD else 'nfc'}"
    home = nfs.mkdir(nfs.root, top, mode=0o777).handle
    inside = nfs.mkdir(home, stored + " folder", mode=0o777).handle
    nfs.write_all(nfs.create(inside, stored, mode=0o666).handle, b"found")
    path = f"{top}/{asked} folder/{asked}"
    smb(house, f'get "{path}" got', cwd=folder)
    assert (folder / "got").read_bytes() == b"found"
    smb(house, f'get "{path.upper()}" got-folded', cwd=folder)
    assert (folder / "got-folded").read_bytes() == b"found"
    assert asked not in (listed := smb(house, f'ls "{top}/{asked} folder/{asked}"')) and stored in listed, "as stored"
    dav = Dav(house, user=house.user)
    found = dav("GET", f"/{house.share}/{path}")
    assert (found.status, found.body) == (200, b"found")
    assert dav("PROPFIND", f"/{house.share}/{path}", Depth=0).status == 207
    again = nfs.lookup(nfs.lookup(home, asked + " folder").handle, asked)
    assert nfs.read_all(again.handle) == b"found"
    assert names(nfs, home) == [stored + " folder"] and names(nfs, inside) == [stored], "listings give what is stored"


@pytest.mark.parametrize("stored, asked", FORMS)
def test_no_door_makes_a_twin(house, nfs, folder, stored, asked):
    top = f"twins-{'nfd' if stored == NFD else 'nfc'}"
    home = nfs.mkdir(nfs.root, top, mode=0o777).handle
    nfs.write_all(nfs.create(home, stored, mode=0o666).handle, b"first")
    with pytest.raises(NfsError) as error:
        nfs.create(home, asked, GUARDED, mode=0o666)
    assert error.value.status == EXIST
    assert "COLLISION" in smb(house, f'mkdir "{top}/{asked}"', check=False)
    (folder / "f").write_bytes(b"by SMB")
    smb(house, f'put f "{top}/{asked}"', cwd=folder)
    assert nfs.read_all(nfs.lookup(home, stored).handle) == b"by SMB"
    dav = Dav(house, user=house.user)
    assert dav("PUT", f"/{house.share}/{top}/{asked}", b"by WebDAV").status == 204
    assert dav("MKCOL", f"/{house.share}/{top}/{asked}").status == 405
    assert nfs.read_all(nfs.lookup(home, stored).handle) == b"by WebDAV"
    assert names(nfs, home) == [stored]
    # A move over it replaces it; an entry moved to its own other form takes that form.
    nfs.write_all(nfs.create(home, "new", mode=0o666).handle, b"moved")
    nfs.rename(home, "new", home, asked)
    assert names(nfs, home) == [stored] and nfs.read_all(nfs.lookup(home, stored).handle) == b"moved"
    nfs.rename(home, stored, home, asked)
    assert names(nfs, home) == [asked]
    smb(house, f'del "{top}/{stored}"')
    assert names(nfs, home) == []


def test_twins_that_are_there_are_both_reachable(house, nfs, folder):
    share = house.share
    house.run("share", "set", share, "--normalize=no", check=True)
    home = nfs.mkdir(nfs.root, "both", mode=0o777).handle
    for name in (NFC, NFD):
        nfs.write_all(nfs.create(home, name, mode=0o666).handle, name.encode())
    said = house.run("share", "explain", house.user, f"/{share}/both", check=True).stdout
    assert "normalize = false" in said, said
    house.run("share", "set", share, "--normalize=yes", check=True)
    said = house.run("share", "explain", house.user, f"/{share}/both/{NFC}", check=True).stdout
    assert "normalize = true" in said, said
    dav = Dav(house, user=house.user)
    for name in (NFC, NFD):
        assert nfs.read_all(nfs.lookup(home, name).handle) == name.encode()
        assert dav("GET", f"/{share}/both/{name}").body == name.encode()
        smb(house, f'get "both/{name}" got', cwd=folder)
        assert (folder / "got").read_bytes() == name.encode()
    smb(house, f'del "both/{NFD}"')
    assert names(nfs, home) == [NFC]
    assert nfs.read_all(nfs.lookup(home, NFD).handle) == NFC.encode(), "what is left has both names"


def test_what_is_open_is_open_under_either_form(house, nfs):
    """A folder with an open file below is not renamed, whichever form names it."""
    home = nfs.mkdir(nfs.root, "opened", mode=0o777).handle
    inside = nfs.mkdir(home, NFD, mode=0o777).handle
    nfs.create(inside, "f", mode=0o666)
    with logged_in(house) as connection:
        tree = connection.connectTree(house.share)
        connection.openFile(tree, f"opened\\{NFC}\\f")
        assert "ACCESS_DENIED" in smb(house, f'rename "opened/{NFD}" opened/other', check=False)
        assert names(nfs, home) == [NFD]
