"""Ways into the page beside the password: passkeys of a browser, and an issuer of OpenID Connect.

  E1  A passkey is added, asked for after the password, and logs in alone; its user names and removes it. Chromium's own authenticator signs.
  E2  An issuer lets people in who are users here. Tokens with a wrong nonce, audience, time, signature or algorithm let nobody in, and neither does
      a state that was used or is another browser's. Keys turn. While the issuer is away, the password works.
  E3  The first log-in by the issuer asks for the password here; a name at the issuer is nobody's for good. That outlives a crash, and ends with a
      password that an owner sets and with the user.
"""

import base64
import contextlib
import hashlib
import json
import re
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from selenium.webdriver.common.by import By
from selenium.webdriver.common.virtual_authenticator import VirtualAuthenticatorOptions

import axe
from browser import PHONE, WIDE
from test_access import add_user
from test_page import ANN, Visitor, ended, own, port_of, press, said  # noqa: F401
from waiting import wait_for

# E1


def authenticator(browser):
    options = VirtualAuthenticatorOptions()
    options.protocol, options.transport = "ctap2", "internal"
    options.has_resident_key = options.has_user_verification = options.is_user_verified = True
    browser.driver.add_virtual_authenticator(options)


def test_a_passkey_comes_after_the_password_and_instead_of_it(own, browser):  # noqa: F811
    daemon = own("--page", "127.0.0.1:0").start()
    url = f"https://localhost:{port_of(daemon)}/+/"

    def click(text):
        """The page that has the button may still be on its way, and its script shows it."""
        script = """const one = [...document.querySelectorAll('button')].find((one) => one.offsetParent && one.textContent.includes(arguments[0]));
            one?.click(); return !!one"""
        wait_for(lambda: browser.run(script, text), told=lambda: said(browser))

    browser.visit(f"https://127.0.0.1:{port_of(daemon)}/+/login")
    assert not browser.driver.find_elements(By.CSS_SELECTOR, "[data-passkey]"), "an address has none"
    authenticator(browser)
    try:
        browser.visit(url + "login")
        press(browser, "/+/login", name="keeper", password=daemon.password)
        wait_for(lambda: "Everything" in said(browser) or "keeper" in browser.driver.page_source)
        browser.visit(url + "me")
        press(browser, "/+/me/passkey", name="my stick")
        wait_for(lambda: "Add a passkey" in said(browser))
        assert not axe.violations(browser)
        click("Create passkey")
        wait_for(lambda: "Recovery codes" in said(browser), told=lambda: said(browser))
        codes = re.findall("[A-Z2-7]{4}-[A-Z2-7]{4}-[A-Z2-7]{4}", said(browser))
        assert len(codes) == 10
        assert "my stick" in (daemon.data / "page_factors").read_text()

        def log_out():
            browser.visit(url + "me")
            browser.driver.find_element(By.CSS_SELECTOR, "form.out button").click()
            wait_for(lambda: browser.driver.find_elements(By.CSS_SELECTOR, "form[action='/+/login']"))

        log_out()
        press(browser, "/+/login", name="keeper", password=daemon.password)
        wait_for(lambda: "Second factor" in said(browser))
        for size in (PHONE, WIDE):
            assert not browser.out_of_the_page() and not axe.violations(browser), size
        click("Use a passkey")
        wait_for(lambda: browser.driver.find_elements(By.CSS_SELECTOR, "form.out"), told=lambda: said(browser))

        log_out()
        click("Log in with a passkey")
        wait_for(lambda: browser.driver.find_elements(By.CSS_SELECTOR, "form.out"), told=lambda: said(browser))
        daemon.kill()
        daemon.start()
        url = f"https://localhost:{port_of(daemon)}/+/"
        log_out()
        click("Log in with a passkey")
        wait_for(lambda: browser.driver.find_elements(By.CSS_SELECTOR, "form.out"), told=lambda: said(browser))
        browser.visit(url + "me")
        press(browser, "/+/me/passkey/rename", name="my ring")
        wait_for(lambda: "is called my ring" in said(browser))
        press(browser, "/+/me/passkey/remove")
        wait_for(lambda: "the password alone lets you in" in said(browser))
        log_out()
        click("Log in with a passkey")
        wait_for(lambda: "not known here" in said(browser) or "gave no passkey" in said(browser), told=lambda: said(browser))
        records = [json.loads(line) for line in daemon.run("audit", "--json", check=True).stdout.splitlines()]
        found = [record for record in records if record["kind"] == "login" and "by passkey" in record["what"]]
        assert found and all(record["who"] == "keeper" for record in found), records
    finally:
        browser.driver.remove_virtual_authenticator()
        browser.driver.delete_all_cookies()
    ended(daemon)


# E2


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value):
    return b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


class Issuer(ThreadingHTTPServer):
    """An issuer for one client. `bend` changes what it says."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.user, self.sub, self.asked, self.bend = "ann", "7", {}, {}
        # Claims of the answer about a person; `None`: there is no such endpoint.
        self.info = None
        self.turn("first")

    def turn(self, kid):
        self.kid, self.key = kid, rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def keys(self):
        public = self.key.public_key().public_numbers()
        return {"keys": [{"kty": "RSA", "kid": self.kid, "use": "sig", "alg": "RS256", "n": number(public.n), "e": number(public.e)}]}

    def token(self, asked):
        now = int(time.time())
        claims = {"iss": self.url, "aud": "pantry", "sub": self.sub, "iat": now, "exp": now + 60, "nonce": asked["nonce"]}
        claims |= {} if self.info else {"preferred_username": self.user}
        header = {"alg": "RS256", "kid": self.kid} | self.bend.get("header", {})
        message = f"{b64(json.dumps(header).encode())}.{b64(json.dumps(claims | self.bend.get('claims', {})).encode())}"
        key = self.bend.get("key", self.key)
        signature = b"" if header["alg"] == "none" else key.sign(message.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{message}.{b64(signature)}"


class Answer(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def say(self, value, status=200, **headers):
        body = json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        url = self.server.url
        path, _, query = self.path.partition("?")
        if path == "/.well-known/openid-configuration":
            known = {"issuer": url, "authorization_endpoint": f"{url}/in", "token_endpoint": f"{url}/token", "jwks_uri": f"{url}/keys"}
            return self.say(known | ({"userinfo_endpoint": f"{url}/me"} if self.server.info else {}))
        if path == "/me":
            right = self.headers["Authorization"] == "Bearer x"
            return self.say(self.server.info if right else {}, 200 if right else 401)
        if path == "/keys":
            return self.say(self.server.keys())
        asked = dict(urllib.parse.parse_qsl(query))
        code = b64(hashlib.sha256(asked["state"].encode()).digest())
        self.server.asked[code] = asked
        back = urllib.parse.urlencode({"code": code, "state": asked["state"]})
        return self.say({}, 302, Location=f"{asked['redirect_uri']}?{back}")

    def do_POST(self):
        form = dict(urllib.parse.parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        asked = self.server.asked.pop(form["code"], None)
        right = "Basic " + base64.b64encode(b"pantry:it%20is%3Asecret").decode()
        if asked is None or self.headers["Authorization"] != right or form["redirect_uri"] != asked["redirect_uri"]:
            return self.say({"error": "invalid_grant"}, 400)
        if b64(hashlib.sha256(form["code_verifier"].encode()).digest()) != asked["code_challenge"]:
            return self.say({"error": "invalid_grant"}, 400)
        return self.say({"id_token": self.server.token(asked), "access_token": "x", "token_type": "Bearer"})


@pytest.fixture
def issuer():
    server = Issuer()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def in_office(own, issuer):  # noqa: F811
    daemon = own("--page", "127.0.0.1:0").start()
    add_user(daemon, "ann", password=ANN)
    ended(daemon)
    (daemon.data / "oidc.secret").write_text("it is:secret\n")
    file = daemon.data / "larder.toml"
    oidc = f'[page.oidc]\nissuer = "{issuer.url}"\nclient_id = "pantry"\nclient_secret_file = "oidc.secret"\nlabel = "Office"\n'
    file.write_text(file.read_text() + "\n" + oidc)
    return daemon.start()


def arrive(daemon, issuer):
    """Somebody goes to the issuer and comes back, as a browser does without a script."""
    person = Visitor(daemon, host=f"localhost:{port_of(daemon)}")
    assert person.get("/+/login/issuer?next=/%2B/me")[0] == 303
    way = urllib.parse.urlsplit(person.location)
    asked = dict(urllib.parse.parse_qsl(way.query))
    code = b64(hashlib.sha256(asked["state"].encode()).digest())
    issuer.asked[code] = asked
    back = urllib.parse.urlencode({"code": code, "state": asked["state"]})
    page = Visitor(daemon, host=person.host).get(f"/+/login/back?{back}")[1]
    finish = re.search('content="0;url=([^"]+)"', page)[1].replace("&#38;", "&").replace("&amp;", "&")
    return person, finish


def first_time(person, finish, password):
    """The password here, asked for by the page that a first log-in ends at."""
    status, page = person.get(finish)
    assert status == 200 and "for the first time" in page, (status, re.sub("<[^>]+>", " ", page)[-600:])
    return person.post("/+/login/issuer", ticket=re.search('name="ticket" value="([^"]+)"', page)[1], password=password)


def comes(daemon, issuer):
    person, finish = arrive(daemon, issuer)
    return person.get(finish)


def test_a_name_at_the_issuer_is_bound_to_a_person_once(own, issuer):  # noqa: F811
    daemon = in_office(own, issuer)
    add_user(daemon, "bob", password=ANN)
    issuer.sub = "4711"
    person, finish = arrive(daemon, issuer)
    assert first_time(person, finish, "guess")[0] == 401
    assert person.get("/+/me")[0] == 303
    issuer.sub = "7"
    person, finish = arrive(daemon, issuer)
    assert first_time(person, finish, ANN)[0] == 303 and person.get("/+/me")[0] == 200
    daemon.kill()
    daemon.start()
    assert comes(daemon, issuer)[0] == 303, "it is on disk before the answer"
    # Another's name now: the person is who they were.
    issuer.user = "bob"
    person, finish = arrive(daemon, issuer)
    assert person.get(finish)[0] == 303 and "ann" in person.get("/+/me")[1]
    issuer.user, issuer.sub = "ann", "4711"
    status, page = comes(daemon, issuer)
    assert status == 401 and "ann is somebody else at Office" in page
    # What only the answer about a person says.
    issuer.sub, issuer.info = "8", {"sub": "8", "preferred_username": "bob"}
    daemon.kill()
    daemon.start()
    person, finish = arrive(daemon, issuer)
    assert first_time(person, finish, ANN)[0] == 303
    issuer.info["sub"] = "9"
    issuer.sub = "10"
    assert "about somebody else" in comes(daemon, issuer)[1]
    issuer.info, issuer.sub = None, "7"
    new = daemon.data / "new"
    new.write_text("another of hers 5\n")
    told = daemon.run("user", "passwd", "ann", "--password-file", new).stdout
    assert "who the user is at the issuer" in told, told
    daemon.run("user", "remove", "bob")
    add_user(daemon, "bob", password="another bob 6")
    for name, sub, password in [("ann", "7", "another of hers 5"), ("bob", "8", "another bob 6")]:
        issuer.user, issuer.sub = name, sub
        person, finish = arrive(daemon, issuer)
        assert first_time(person, finish, ANN)[0] == 401, "not the password of before"
        person, finish = arrive(daemon, issuer)
        assert first_time(person, finish, password)[0] == 303
    ended(daemon)


def test_an_issuer_lets_its_people_in(own, issuer, browser):  # noqa: F811
    daemon = in_office(own, issuer)
    person, finish = arrive(daemon, issuer)
    assert first_time(person, finish, ANN)[0] == 303
    url = f"https://localhost:{port_of(daemon)}/+/"
    browser.complaints()  # Those of pages before do not count.
    with contextlib.ExitStack() as undo:
        undo.callback(browser.driver.delete_all_cookies)
        browser.visit(url + "me")
        for size in (PHONE, WIDE):
            for dark in (False, True):
                browser.visit(url + "login?next=/%2B/me", size, dark)
                assert not axe.violations(browser) and not browser.out_of_the_page()
        browser.driver.find_element(By.LINK_TEXT, "Log in with Office").click()
        wait_for(lambda: browser.driver.find_elements(By.CSS_SELECTOR, "form.out"), told=lambda: said(browser))
        assert browser.driver.current_url == url + "me" and "ann" in said(browser)
        assert not browser.complaints()
    person, finish = arrive(daemon, issuer)
    assert person.get(finish)[0] == 303 and person.location == "/+/me"
    assert person.get("/+/me")[0] == 200
    assert person.get("/+/storage")[0] == 403, "roles stay here"
    # A state opens once, and in its own browser.
    assert person.get(finish)[0] == 401
    _, finish = arrive(daemon, issuer)
    assert Visitor(daemon, host=person.host).get(finish)[0] == 401

    now = int(time.time())
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    for bend, why in [
        ({"claims": {"nonce": "x"}}, "another log-in"),
        ({"claims": {"aud": "other"}}, "another program"),
        ({"claims": {"aud": ["pantry", "other"]}}, "several programs"),
        ({"claims": {"iss": "https://evil.test"}}, "another issuer"),
        ({"claims": {"exp": now - 3600}}, "is over"),
        ({"claims": {"iat": now + 3600}}, "of the future"),
        ({"claims": {"sub": "8", "preferred_username": "eve"}}, "no user eve here"),
        ({"claims": {"sub": "8", "preferred_username": "<b>eve"}}, "no user &#60;b&#62;eve here"),
        ({"header": {"alg": "none"}}, "not believed"),
        ({"header": {"alg": "HS256"}}, "not believed"),
        ({"key": other}, "signature"),
        ({"header": {"kid": "unknown"}}, "a key that it does not have"),
    ]:
        issuer.bend = bend
        person, finish = arrive(daemon, issuer)
        status, page = person.get(finish)
        assert status == 401 and why in page, (why, re.sub("<[^>]+>", " ", page)[-600:])
        assert person.get("/+/me")[0] == 303
    issuer.bend = {}
    issuer.turn("second")
    person, finish = arrive(daemon, issuer)
    assert person.get(finish)[0] == 303, "keys turn"
    people = {user["name"] for user in json.loads(daemon.run("user", "list", "--json").stdout)}
    assert people == {"keeper", "ann"}, "nobody is created"

    _, finish = (gone := arrive(daemon, issuer))
    issuer.shutdown()
    issuer.server_close()
    status, page = gone[0].get(finish)
    assert status == 503 and "cannot be reached" in page
    assert Visitor(daemon).log_in("ann", ANN) == 303, "the password works"
    ended(daemon)
