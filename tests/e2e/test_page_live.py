"""Who is connected, what limits each transfer, and what is answered about a client: by the page.

  L1  Home and Connections say of each transfer what limits it, as `larder top` does; a page without a script says it, too.
  L2  A client that the guard stopped writes again once the owner says so on the page.
  L3  Files that clients of SMB and NFSv4 have open are seen with their locks, and closed: by the page and by `larder opens`.
"""

import contextlib
import json
import threading

import pytest
from impacket.smbconnection import SessionError, SMBConnection
from selenium.webdriver.common.by import By

from conftest import client, payload
from guard_loads import told
from nfs4 import BOTH, UNCHECKED, WRITE, WRITE_LOCK, Nfs4, refused
from test_page import ANN, daemon, ended, enter, own, press, said, visitor  # noqa: F401
from waiting import wait_for


@contextlib.contextmanager
def reading(daemon):
    """A client of NFS that reads one file over and over, one request after another."""
    over = threading.Event()

    def read():
        with client(daemon) as nfs:
            file = nfs.create(nfs.root, "read", mode=0o666).handle
            nfs.write_all(file, payload(1 << 20))
            while not over.is_set():
                nfs.read(file, 0, 1 << 20)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


# L1


def test_pages_say_what_limits_a_transfer(daemon, browser):  # noqa: F811
    looker = visitor(daemon, "len")
    assert "Nothing is transferred." in looker.get("/+/connections")[1]
    assert visitor(daemon, "ann").get("/+/connections")[0] == 403
    with contextlib.closing(enter(daemon, browser)):
        for path in ["", "connections"]:
            browser.visit(daemon.info["page"]["url"] + "+/" + path)
            wait_for(lambda: "Nothing is transferred." in said(browser))
        with reading(daemon):
            for path in ["connections", ""]:
                browser.visit(daemon.info["page"]["url"] + "+/" + path)
                shown = wait_for(lambda: browser.run("return document.querySelector('#live .transfers')?.textContent"), told=lambda: said(browser))
                assert "127.0.0.1" in shown and "NFS" in shown and "limited by: " in shown, shown
            wait_for(lambda: "limited by: " in looker.get("/+/connections")[1])
        # The last look goes away with its client.
        wait_for(lambda: "Nobody is connected." in said(browser), told=lambda: said(browser))
        assert not browser.complaints()


# L2


def test_a_client_is_vouched_for_by_the_page(own, browser):  # noqa: F811
    daemon = own("--page", "127.0.0.1:0").start()
    daemon.run("share", "set", daemon.share, "--guard", "block", check=True)
    with client(daemon) as nfs:
        for n in range(120):
            nfs.write_all(nfs.create(nfs.root, f"f{n}", mode=0o666).handle, b"These are words that somebody can read. " * 100)
    smb = SMBConnection("*S", "127.0.0.1", sess_port=daemon.smb_port)
    smb.login(daemon.user, daemon.password)
    tree, ruined = smb.connectTree(daemon.share), 0
    with contextlib.suppress(Exception):
        for n in range(120):
            file = smb.openFile(tree, f"f{n}", desiredAccess=0x12019F)
            smb.writeFile(tree, file, payload(4000, seed=n))
            smb.closeFile(tree, file)
            ruined += 1
    assert ruined < 60, ruined
    assert told(daemon)
    with contextlib.closing(enter(daemon, browser)):
        browser.visit(daemon.info["page"]["url"] + "+/alerts")
        press(browser, "/+/alerts/release")
        wait_for(lambda: "is vouched for" in said(browser))
        assert not browser.driver.find_elements(By.CSS_SELECTOR, "form[action='/+/alerts/release']")
    assert told(daemon) == []
    smb.closeFile(tree, smb.createFile(tree, "after"))
    ended(daemon)


# L3


def opens(daemon):
    return json.loads(daemon.run("opens", "--json", check=True).stdout)["opens"]


def test_open_files_of_smb_are_seen_and_closed(daemon, browser):  # noqa: F811
    smb = SMBConnection("*S", "127.0.0.1", sess_port=daemon.smb_port)
    smb.login(daemon.user, daemon.password)
    tree = smb.connectTree(daemon.share)
    smb.createDirectory(daemon.share, "papers")
    file = smb.createFile(tree, "papers\\a&b'c.docx", shareMode=1)
    [seen] = [one for one in opens(daemon) if one["door"] == "smb"]
    assert (seen["path"], seen["share"], seen["user"], seen["address"]) == ("/papers/a&b'c.docx", daemon.share, daemon.user, "127.0.0.1")
    assert seen["denies"] == ["write", "delete"] and {"read", "write"} <= set(seen["does"])
    assert "/papers/a&b'c.docx" in daemon.run("opens").stdout
    other = SMBConnection("*S", "127.0.0.1", sess_port=daemon.smb_port)
    other.login(daemon.user, daemon.password)
    with pytest.raises(SessionError, match="SHARING_VIOLATION"):
        other.openFile(other.connectTree(daemon.share), "papers\\a&b'c.docx", desiredAccess=0x12019F)
    looker = visitor(daemon, "len")
    assert looker.post("/+/connections/end-open", id=seen["id"])[0] == 403
    assert daemon.run("opens", "end", "smb-999999").returncode == 1
    with contextlib.closing(enter(daemon, browser)):
        browser.visit(daemon.info["page"]["url"] + "+/connections")
        assert "/papers/a&b'c.docx" in said(browser)
        press(browser, "/+/connections/end-open")
        wait_for(lambda: "closed for that client" in said(browser))
        assert "No file is open." in said(browser)
    with pytest.raises(SessionError, match="FILE_CLOSED"):
        smb.writeFile(tree, file, b"late")
    handle = other.openFile(other.connectTree(daemon.share), "papers\\a&b'c.docx", desiredAccess=0x12019F)
    other.closeFile(other.connectTree(daemon.share), handle)
    acts = [json.loads(line) for line in daemon.run("audit", "--json").stdout.splitlines()]
    assert any((act["what"], act.get("target"), act["by"]) == ("EndOpenFile", seen["id"], "page") for act in acts)


def test_open_files_of_nfs_are_seen_and_closed(daemon):  # noqa: F811
    with Nfs4("127.0.0.1", daemon.nfs_port) as nfs, Nfs4("127.0.0.1", daemon.nfs_port) as other:
        nfs.session()
        other.session()
        nfs.mkdir([daemon.share, "letters"], mode=0o777)
        path = [daemon.share, "letters", "one"]
        file = nfs.open(path, create=UNCHECKED, mode=0o666, deny=WRITE)
        nfs.lock(file, WRITE_LOCK)
        [seen] = [one for one in opens(daemon) if one["door"] == "nfs"]
        assert (seen["path"], seen["volume"], seen["address"]) == ("/letters/one", "tank/files", "127.0.0.1"), seen
        assert seen["does"] == ["read", "write"] and seen["denies"] == ["write"] and seen["locks"] == 1
        with refused("SHARE_DENIED"):
            other.open(path, access=BOTH)
        assert daemon.run("opens", "end", seen["id"]).returncode == 0
        with refused("BAD_STATEID", "EXPIRED"):
            nfs.write(file, 0, b"late")
        mine = other.open(path, access=BOTH)
        other.lock(mine, WRITE_LOCK)
        other.close_file(mine)
        assert not [one for one in opens(daemon) if one["id"] == seen["id"]]
