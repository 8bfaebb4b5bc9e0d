"use strict";
// Times in the viewer's zone, confirmations, forms that are sent once, and lists that pause while the page is hidden. Pages work without this file.

(() => {
  const SECOND = 1000;
  const AGE_REFRESH_MS = 10 * SECOND;
  const AGE_UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const ages = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";

  const two = (number) => String(number).padStart(2, "0");

  // Whether times are shown in UTC. A frame of another site may have no storage: then the choice lasts until the next page.
  const UTC_KEY = "ringback-times-in-utc";
  let showsUtc = readChoice();

  function readChoice() {
    try { return localStorage.getItem(UTC_KEY) === "yes"; } catch { return false; }
  }

  function storeChoice() {
    try { localStorage.setItem(UTC_KEY, showsUtc ? "yes" : "no"); } catch { /* see above */ }
  }

  function formatLocal(instant) {
    const day = `${instant.getFullYear()}-${two(instant.getMonth() + 1)}-${two(instant.getDate())}`;
    return `${day} ${two(instant.getHours())}:${two(instant.getMinutes())}:${two(instant.getSeconds())}`;
  }

  function formatAge(instant) {
    const seconds = Math.round((instant.getTime() - Date.now()) / SECOND);
    const [unit, size] = AGE_UNITS.find(([, length]) => Math.abs(seconds) >= length) || ["second", 1];
    return ages.format(Math.trunc(seconds / size), unit);
  }

  function showTime(element) {
    const instant = new Date(element.dateTime);
    if (Number.isNaN(instant.getTime())) return;
    const utc = `${instant.toISOString().slice(0, 19).replace("T", " ")} UTC`;
    const local = formatLocal(instant);
    const isAge = element.hasAttribute("data-age");
    element.textContent = showsUtc ? utc : isAge ? formatAge(instant) : local;
    element.title = isAge ? `${local} ${zone}\n${utc}` : utc;
  }

  function showTimes(root) {
    if (root instanceof Element && root.matches("time[datetime]")) showTime(root);
    root.querySelectorAll("time[datetime]").forEach(showTime);
  }

  // On narrow screens a row is a block of lines (ringback.css), each with the name of its column. Roles, because a block is no table row.
  function labelTable(table) {
    const names = [...table.querySelectorAll("thead th")].map((each) => each.textContent.trim());
    table.classList.add("labelled");
    table.setAttribute("role", "table");
    table.querySelectorAll("tbody").forEach((each) => each.setAttribute("role", "rowgroup"));
    table.querySelectorAll("tbody tr").forEach((row) => {
      row.setAttribute("role", "row");
      [...row.children].forEach((cell, place) => {
        cell.setAttribute("role", cell.localName === "th" ? "rowheader" : "cell");
        cell.dataset.label = names[place] || "";
      });
    });
  }

  function labelTables(root) {
    root.querySelectorAll(".table-scroll > table").forEach((each) => {
      if (each.tHead && !each.closest(".chart")) labelTable(each);
    });
  }

  function nameZone() {
    const note = document.getElementById("zone-note");
    const button = document.getElementById("zone-button");
    if (!note || !button || zone === "UTC") return;
    note.textContent = showsUtc ? "Times are in UTC." : `Times are in ${zone}. Charts and filters are in UTC.`;
    button.textContent = showsUtc ? `Show times in ${zone}` : "Show times in UTC";
    button.hidden = false;
  }

  function toggleUtc() {
    showsUtc = !showsUtc;
    storeChoice();
    nameZone();
    showTimes(document);
  }

  // A button or form with data-confirm asks before it is sent.
  const confirmed = new WeakSet();

  function askFirst(event) {
    const form = event.target;
    const button = event.submitter;
    const question = (button && button.dataset.confirm) || form.dataset.confirm;
    const dialog = document.getElementById("confirm-dialog");
    if (!question || !dialog || confirmed.delete(form)) return;
    event.preventDefault();
    event.stopPropagation();
    dialog.querySelector("p").textContent = question;
    dialog.querySelector("[value=yes]").textContent = button ? button.textContent.trim() : "Continue";
    dialog.querySelector("[value=no]").textContent = (button && button.dataset.keep) || "Cancel";
    dialog.returnValue = "";
    dialog.addEventListener("close", () => {
      if (dialog.returnValue !== "yes" || !form.isConnected) return;
      confirmed.add(form);
      form.requestSubmit(button && button.isConnected ? button : null);
    }, { once: true });
    dialog.showModal();
  }

  // A form that is on its way is not sent a second time: the browser would show the response to the second request, and a secret
  // is only in that to the first one. After a while it can be, because a viewer may have stopped the first request.
  const SENT_AGAIN_AFTER_MS = 10 * SECOND;
  let sentAt = new WeakMap();

  function sendOnce(event) {
    const form = event.target;
    if (event.defaultPrevented || form.method !== "post") return;
    const now = performance.now();
    if (now < (sentAt.get(form) ?? -Infinity) + SENT_AGAIN_AFTER_MS) event.preventDefault();
    else sentAt.set(form, now);
  }

  // An EventSource that is closed while the page is hidden. The htmx extension for SSE makes all of its sources with it.
  class PausingEventSource {
    constructor(url) {
      this.url = url;
      this.listeners = [];
      this.ended = false;
      this.onVisibility = () => (document.hidden ? this.pause() : this.resume());
      document.addEventListener("visibilitychange", this.onVisibility);
      this.resume();
    }

    get readyState() {
      return this.source ? this.source.readyState : (this.ended ? EventSource.CLOSED : EventSource.CONNECTING);
    }

    resume() {
      if (this.source || this.ended || document.hidden) return;
      this.source = new EventSource(this.url, { withCredentials: true });
      this.source.onopen = (event) => this.onopen && this.onopen(event);
      this.source.onerror = (event) => this.fail(event);
      this.source.addEventListener("viewer-ended", () => location.reload()); // the sign-in or the portal link has ended
      this.listeners.forEach(([name, listener]) => this.source.addEventListener(name, listener));
    }

    pause() {
      if (this.source) this.source.close();
      this.source = null;
    }

    fail(event) {
      if (this.source && this.source.readyState === EventSource.CLOSED) this.stop();
      if (this.onerror) this.onerror(event);
    }

    stop() {
      this.ended = true;
      document.removeEventListener("visibilitychange", this.onVisibility);
    }

    close() {
      this.stop();
      this.pause();
    }

    addEventListener(name, listener) {
      this.listeners.push([name, listener]);
      if (this.source) this.source.addEventListener(name, listener);
    }

    removeEventListener(name, listener) {
      this.listeners = this.listeners.filter(([known, other]) => known !== name || other !== listener);
      if (this.source) this.source.removeEventListener(name, listener);
    }
  }

  function pauseRequests(event) {
    if (document.hidden) event.preventDefault();
  }

  function refreshOnReturn() {
    if (!document.hidden && window.htmx) window.htmx.trigger(document.body, "page-visible");
  }

  // New rows replace the old ones. What was unfolded stays so, wide charts stay scrolled, and the keyboard stays where it was.
  const keyOf = (element) => element.dataset.key || element.getAttribute("href") || element.getAttribute("aria-label");
  const kept = new WeakMap();

  function findByKey(root, selector, key) {
    return key && [...root.querySelectorAll(selector)].find((each) => keyOf(each) === key);
  }

  function nameFocused(root) {
    const focused = document.activeElement;
    if (!focused || !root.contains(focused)) return null;
    const fold = focused.matches("summary") && focused.closest("details");
    return fold ? ["details", keyOf(fold)] : [focused.localName, keyOf(focused)];
  }

  function keepPlaces(event) {
    const root = event.target;
    kept.set(root, {
      unfolded: [...root.querySelectorAll("details[open]")].map(keyOf),
      scrolled: [...root.querySelectorAll("[role=region]")].filter((each) => each.scrollLeft).map((each) => [keyOf(each), each.scrollLeft]),
      focused: nameFocused(root),
    });
  }

  function restorePlaces(root) {
    const places = kept.get(root);
    if (!places) return;
    kept.delete(root);
    places.unfolded.forEach((key) => {
      const fold = findByKey(root, "details", key);
      if (fold) fold.open = true;
    });
    places.scrolled.forEach(([key, left]) => {
      const region = findByKey(root, "[role=region]", key);
      if (region) region.scrollLeft = left;
    });
    const [tag, key] = places.focused || [];
    const found = tag && findByKey(root, tag, key);
    if (found) (found.querySelector("summary") || found).focus({ preventScroll: true });
  }

  if (window.htmx) window.htmx.createEventSource = (url) => new PausingEventSource(url);
  document.addEventListener("submit", askFirst, true);
  document.addEventListener("submit", sendOnce);
  window.addEventListener("pageshow", () => { sentAt = new WeakMap(); }); // also a page to which the browser went back
  document.addEventListener("visibilitychange", refreshOnReturn);
  document.addEventListener("htmx:beforeRequest", pauseRequests);
  // At the swap, because htmx:load comes 20 ms later: the times of a live list would flash in UTC.
  document.addEventListener("htmx:sseBeforeMessage", keepPlaces);
  document.addEventListener("htmx:beforeSwap", keepPlaces);
  document.addEventListener("htmx:afterSwap", (event) => {
    showTimes(event.target);
    labelTables(event.target);
    restorePlaces(event.target);
  });
  document.addEventListener("htmx:load", (event) => showTimes(event.target));
  setInterval(() => {
    if (!document.hidden) document.querySelectorAll("time[data-age]").forEach(showTime);
  }, AGE_REFRESH_MS);
  const zoneButton = document.getElementById("zone-button");
  if (zoneButton) zoneButton.addEventListener("click", toggleUtc);
  nameZone();
  showTimes(document);
  labelTables(document);
})();
