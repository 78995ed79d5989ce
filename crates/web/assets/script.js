// The page works without this. It shows times in the browser's zone, brings the current place of the navigation into view, goes to the log-in when the session of a living part is over, and loads the page again when a living part could not begin.
'use strict';
(() => {
  const zone = (root) => {
    for (const time of root.querySelectorAll('time[datetime]:not([data-local])')) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      time.title = time.textContent;
      time.textContent = at.toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' });
      time.dataset.local = '';
    }
  };
  const start = () => {
    zone(document);
    const here = document.querySelector('.bar [aria-current]');
    if (here) here.scrollIntoView({ block: 'nearest', inline: 'center' });
  };
  if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', start);
  else start();
  document.addEventListener('htmx:sse:after:message', () => zone(document));
  // A stream that has begun is begun anew by its extension. One that could not begin waits here until the server answers.
  const again = () => fetch('/+/login', { method: 'HEAD' }).then(() => location.reload(), () => setTimeout(again, 5000));
  document.addEventListener('htmx:error', (event) => {
    if (event.target.id === 'live' && !(event.target._htmx && event.target._htmx.sse)) setTimeout(again, 1000);
  });
  document.addEventListener('htmx:sse:error', (event) => {
    if (event.detail && event.detail.status === 401) location.reload();
  });
})();
