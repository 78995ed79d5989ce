// The page works without this. It shows times in the browser's zone, brings the current place of the navigation into view, goes to the log-in when the session of a living part is over, loads the page again when a living part could not begin, and says so when a living part is old. Passkeys alone need it.
'use strict';
(() => {
  const zone = (root) => {
    for (const time of root.querySelectorAll('time[datetime]:not([data-local])')) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      time.title = time.textContent;
      const shape = 'weekday' in time.dataset ? { weekday: 'long' } : { dateStyle: 'medium', timeStyle: 'short' };
      time.textContent = at.toLocaleString(undefined, shape);
      time.dataset.local = '';
    }
  };
  // The newest of each day of the browser's zone, out of the newest of each quarter of a day.
  const days = (list) => {
    let before = '';
    for (const item of list.children) {
      const day = new Date(item.querySelector('time').dateTime).toDateString();
      item.hidden = day === before;
      before = day;
    }
  };
  const start = () => {
    document.querySelectorAll('.days').forEach(days);
    zone(document);
    const here = document.querySelector('.bar [aria-current]');
    if (here) here.scrollIntoView({ block: 'nearest', inline: 'center' });
  };
  if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', start);
  else start();
  document.addEventListener('htmx:sse:after:message', () => zone(document));
  // Passkeys: a form has the question, and the browser's answer goes into it. Bytes are base64url in both.
  const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, '+').replace(/_/g, '/')), (one) => one.charCodeAt(0));
  const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
  const question = (form) => {
    const asked = JSON.parse(form.querySelector('[data-question]').value);
    const known = (list) => (list || []).map((one) => ({ ...one, id: bytes(one.id) }));
    asked.challenge = bytes(asked.challenge);
    if (!asked.user) return navigator.credentials.get({ publicKey: { ...asked, allowCredentials: known(asked.allowCredentials) } });
    asked.user.id = bytes(asked.user.id);
    return navigator.credentials.create({ publicKey: { ...asked, excludeCredentials: known(asked.excludeCredentials) } });
  };
  const answered = (form, made) => {
    const { clientDataJSON, attestationObject, authenticatorData, signature, userHandle } = made.response;
    const fields = { id: made.rawId, client: clientDataJSON, attestation: attestationObject, data: authenticatorData, signature, handle: userHandle };
    for (const [name, value] of Object.entries(fields)) {
      if (!value) continue;
      const field = document.createElement('input');
      Object.assign(field, { type: 'hidden', name, value: text(value) });
      form.append(field);
    }
    form.submit();
  };
  for (const form of window.PublicKeyCredential ? document.querySelectorAll('form[data-passkey]') : []) {
    form.hidden = false;
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      question(form).then((made) => answered(form, made), (error) => {
        const place = form.querySelector('[role=alert]');
        place.hidden = false;
        place.textContent = error.name === 'NotAllowedError' ? 'The browser gave no passkey: it was cancelled, took too long, or has none for this page.' : `The browser gave no passkey: ${error.message}`;
      });
    });
  }
  // Says since when a living part is old. The stream may be lost, and a box that lost its power says nothing at all: it is asked, too.
  const live = document.getElementById('live');
  const lost = new Set();
  const line = document.createElement('p');
  Object.assign(line, { className: 'note bad', role: 'alert' });
  const tell = (what, isLost) => {
    if (!live || isLost === lost.has(what)) return;
    const wasLost = lost.size > 0;
    isLost ? lost.add(what) : lost.delete(what);
    if (lost.size > 0 && !wasLost) {
      const at = new Date().toLocaleTimeString(undefined, { timeStyle: 'short' });
      line.textContent = `No connection to the box since ${at}; what is shown is of then.`;
      live.before(line);
    }
    if (lost.size === 0) line.remove();
    live.classList.toggle('old', lost.size > 0);
  };
  const ask = () => fetch('/+/login', { method: 'HEAD', signal: AbortSignal.timeout(8000) });
  const ASK_EVERY_MS = 15000;
  if (live) setInterval(() => document.hidden || ask().then(() => tell('box', false), () => tell('box', true)), ASK_EVERY_MS);
  // A stream that has begun is begun anew by its extension. One that could not begin waits here until the server answers.
  const again = () => ask().then(() => location.reload(), () => setTimeout(again, 5000));
  document.addEventListener('htmx:error', (event) => {
    if (event.target.id !== 'live' || (event.target._htmx && event.target._htmx.sse)) return;
    tell('stream', true);
    setTimeout(again, 1000);
  });
  document.addEventListener('htmx:sse:error', (event) => {
    if (event.detail && event.detail.status === 401) location.reload();
    else tell('stream', true);
  });
  document.addEventListener('htmx:sse:after:connection', () => tell('stream', false));
})();
