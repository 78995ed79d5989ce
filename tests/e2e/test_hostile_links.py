"""Links of the file view, in the wrong hands (docs/webdav.md, docs/people.md).

  K1  A link ends with its maker, and with the maker's password unless the administrator says no.
  K2  Another user of an old name inherits nothing: links, tokens, keys, lists, sessions, uploads; with the same number, nothing that lets in.
  K3  Administrators see and end the links of everybody; a user sees and ends the user's own.
  K4  An app token sees its share and nothing else: no links, no uploads of other shares.
  K5  Names that steer a terminal do not steer one in lists.
"""

import json
import os
import re
import subprocess
import urllib.parse

import pytest

from conftest import make
from test_access import add_user
from test_file_view import HTML, Person, link_to
from test_webdav import ANN, Dav


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    daemon = make(tmp_path_factory.mktemp("links"), extra=["--webdav", "127.0.0.1:0"]).start()
    yield daemon
    log = daemon.log()
    assert daemon.stop() == 0 and "panicked" not in log, log[-4000:]


def entered(daemon, name, password=ANN):
    person = Person(daemon)
    assert person.log_in(name, password)[0] == 303
    return person


def links(daemon, *words):
    return json.loads(daemon.run("link", "list", "--json", *words, check=True).stdout)


def opens(daemon, link):
    return Person(daemon)("GET", link + "?raw")[0]


def passwd(daemon, name, password, *words):
    file = daemon.data / "password-new"
    file.write_text(password + "\n")
    return daemon.run("user", "passwd", name, "--password-file", file, *words, check=True)


def test_a_link_ends_with_its_maker_and_the_password(daemon):
    """K1, K3"""
    add_user(daemon, "carl")
    path = f"/{daemon.share}/carl.txt"
    Dav(daemon, "carl", ANN).put(path, b"carl's")
    carl = entered(daemon, "carl")
    link = link_to(carl, path, days=30)
    assert opens(daemon, link) == 200
    (one,) = links(daemon, "--user", "carl")
    assert (one["user"], one["share"], one["path"]) == ("carl", daemon.share, path[1:]) and one["used_secs"] >= one["created_secs"]
    assert link.split("/")[2] not in json.dumps(one) and "carl.txt" in daemon.run("link", "list", check=True).stdout
    # Kept, if the administrator says so.
    passwd(daemon, "carl", "Pantry-Shelf-50", "--keep-links")
    assert opens(daemon, link) == 200
    said = passwd(daemon, "carl", "Pantry-Shelf-51").stdout
    assert "links" in said and opens(daemon, link) == 404 and links(daemon, "--user", "carl") == []
    assert carl("GET", "/", **HTML)[0] == 303, "the session ended, too"
    # Revoked by an administrator, by its name and by its maker's.
    carl = entered(daemon, "carl", "Pantry-Shelf-51")
    made = [link_to(carl, path, days=30) for _ in range(3)]
    first = links(daemon, "--user", "carl")[0]["id"]
    daemon.run("link", "revoke", first, check=True)
    assert [opens(daemon, link) for link in made] == [404, 200, 200]
    refused = daemon.run("link", "revoke", first)
    assert refused.returncode != 0 and "link list" in refused.stderr
    daemon.run("link", "revoke", "--user", "carl", check=True)
    assert [opens(daemon, link) for link in made] == [404] * 3
    assert daemon.run("link", "revoke").returncode != 0 and daemon.run("link", "revoke", "--user", "nobody").returncode != 0
    # A user's own, and no other's.
    link, other = link_to(carl, path, days=1), link_to(entered(daemon, "keeper", daemon.password), path, days=1)
    (keepers,) = links(daemon, "--user", "keeper")
    assert keepers["id"].encode() not in carl("GET", "/.larder/links", **HTML)[1]
    assert carl.form("/.larder/links", csrf=carl.csrf, revoke=keepers["id"])[0] == 303
    assert opens(daemon, other) == 200 == opens(daemon, link)


def test_a_new_user_of_an_old_name_inherits_nothing(daemon, folder):
    """K1, K2"""
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    add_user(daemon, "dora", "--uid", "2345")
    daemon.run("share", "add", "doras", "--volume", "files", "--users", "dora", check=True)
    daemon.run("group", "add", "house", "--member", "dora")
    daemon.run("user", "key", "add", "dora", f"{key}.pub", check=True)
    token = json.loads(daemon.run("token", "create", "dora", "--json", check=True).stdout)["token"]
    path = f"/{daemon.share}/dora.txt"
    Dav(daemon, "dora", ANN).put(path, b"dora's")
    dora = entered(daemon, "dora")
    link = link_to(dora, path, days=30)
    begun = dora("POST", f"/{daemon.share}/part.txt?upload", b"", Upload_Length="10", X_Csrf_Token=dora.csrf)
    upload = dora.answer.headers["Location"]
    assert begun[0] == 201 and Dav(daemon, "dora", token)("GET", path).status == 200
    for again in (["--uid", "2345"], ["--uid", "2346"], []):
        daemon.run("user", "remove", "dora", check=True)
        assert opens(daemon, link) == 404 and links(daemon, "--user", "dora") == []
        add_user(daemon, "dora", *again, password="Pantry-Shelf-52")
        assert opens(daemon, link) == 404
        assert Dav(daemon, "dora", token)("GET", path).status == 401, "the token"
        assert Dav(daemon, "dora", ANN)("GET", path).status == 401, "the password"
        assert dora("GET", "/", **HTML)[0] == 303, "the session"
        assert Dav(daemon, "dora", "Pantry-Shelf-52")("HEAD", upload).status == 404, "the upload"
        assert json.loads(daemon.run("user", "key", "list", "dora", "--json", check=True).stdout) == [], "keys"
        assert all("dora" not in group["members"] for group in json.loads(daemon.run("group", "list", "--json", check=True).stdout))
        assert Dav(daemon, "dora", "Pantry-Shelf-52")("PROPFIND", "/doras", Depth="0").status in (403, 404), "lists"
        assert "dora" not in daemon.run("token", "list", check=True).stdout


def test_names_and_numbers_that_were_changed_by_hand(daemon):
    """K2: the file is edited by hand, without `user remove`."""
    add_user(daemon, "emil", "--uid", "3456")
    path = f"/{daemon.share}/emil.txt"
    Dav(daemon, "emil", ANN).put(path, b"emil's")
    link = link_to(entered(daemon, "emil"), path, days=30)
    token = json.loads(daemon.run("token", "create", "emil", "--json", check=True).stdout)["token"]
    file = daemon.data / "larder.toml"
    text = file.read_text()
    file.write_text(text.replace("3456", "3457"))
    daemon.run("reload", check=True)
    assert opens(daemon, link) == 404 and Dav(daemon, "emil", token)("GET", path).status == 401
    file.write_text(text)
    daemon.run("reload", check=True)
    assert opens(daemon, link) == 404, "what has ended does not come back"


def test_without_the_daemon(folder):
    """K1, K3: the same on the files of a daemon that does not run."""
    larder = make(folder, extra=["--webdav", "127.0.0.1:0"]).start()
    try:
        add_user(larder, "fay", "--uid", "2345")
        path = f"/{larder.share}/f.txt"
        Dav(larder, "fay", ANN).put(path, b"fay's")
        fay = entered(larder, "fay")
        made = [link_to(fay, path, days=1) for _ in range(3)]
        larder.stop()
        daemonless = links(larder)
        assert len(daemonless) == 3
        larder.run("link", "revoke", daemonless[0]["id"], check=True)
        assert len(links(larder)) == 2
        file = larder.data / "password-new"
        file.write_text("Pantry-Shelf-53\n")
        larder.run("user", "passwd", "fay", "--keep-links", "--password-file", file, check=True)
        assert len(links(larder)) == 2
        larder.run("user", "remove", "fay", check=True)
        assert links(larder) == []
        larder.run("user", "add", "fay", "--uid", "2345", "--password-file", file, check=True)
        larder.start()
        assert [opens(larder, link) for link in made] == [404] * 3
        assert (larder.data / "links").stat().st_mode & 0o777 == 0o600
    finally:
        larder.end()


def test_a_token_sees_its_share_and_nothing_else(daemon):
    """K4"""
    add_user(daemon, "gus")
    daemon.run("share", "add", "gusses", "--volume", "files", "--folder", "gusses", "--users", "gus", check=True)
    own, other = f"/{daemon.share}/gus.txt", "/gusses/secret.txt"
    dav = Dav(daemon, "gus", ANN)
    dav.put(own, b"x")
    link = link_to(entered(daemon, "gus"), f"/{daemon.share}/gus.txt", days=1)
    person = entered(daemon, "gus")
    if dav("PUT", other, b"secret").status in (201, 204):
        link = link_to(person, other, days=1)
    one = links(daemon, "--user", "gus")[-1]
    for words in (["--share", daemon.share], ["--share", daemon.share, "--read-only"], []):
        token = json.loads(daemon.run("token", "create", "gus", *words, "--json", check=True).stdout)["token"]
        narrow = Dav(daemon, "gus", token)
        listed = narrow("GET", "/.larder/links")
        assert listed.status == 403 and b"secret" not in listed.body and one["id"].encode() not in listed.body
        assert narrow("POST", "/.larder/links", f"revoke={one['id']}").status == 403
        assert narrow("POST", f"{own}?share", "days=1").status in (403, 405)
        assert opens(daemon, link) == 200
    # An upload of another share is none of a token's, whoever tells it the name.
    person("POST", "/gusses/part.txt?upload", b"", Upload_Length="10", X_Csrf_Token=person.csrf)
    upload = person.answer.headers["Location"]
    if upload:
        token = json.loads(daemon.run("token", "create", "gus", "--share", daemon.share, "--json", check=True).stdout)["token"]
        for method in ("HEAD", "PATCH", "DELETE"):
            assert Dav(daemon, "gus", token)(method, upload, Upload_Offset="0").status == 404
        assert Dav(daemon, "gus", ANN)("HEAD", upload).status == 200


def test_names_in_lists_do_not_steer_a_terminal(daemon):
    """K5"""
    name = "evil\x1b]0;pwned\x07\x1b[31m\u202ename"
    dav = Dav(daemon)
    dav.put(f"/{daemon.share}/{name}", b"x")
    person = entered(daemon, "keeper", daemon.password)
    status, page = person.form(f"/{daemon.share}/{urllib.parse.quote(name)}?share", csrf=person.csrf, days=1)
    assert status == 200 and re.search(rb"/\.link/", page)
    text = daemon.run("link", "list", check=True).stdout
    assert "pwned" in text and all(line.isprintable() for line in text.splitlines()), text
    assert os.path.exists(daemon.data / "links")
