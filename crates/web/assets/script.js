// The page works without this. It shows times in the browser's zone, brings the current place of the navigation into view, and goes to the log-in when the session of a living part is over.
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
  document.addEventListener('htmx:sse:error', (event) => {
    if (event.detail && event.detail.status === 401) location.reload();
  });
})();
