"use strict";
// The list of versions on each page: `make site` puts each version's pages in here. It leads to the same page of
// another version, or to its first page where it has no such page.
{
  const versions = {};
  const picker = document.getElementById("versions");
  const here = document.currentScript.src;
  picker.replaceChildren();
  for (const [version, pages] of Object.entries(versions)) {
    const page = pages.includes(picker.dataset.page) ? picker.dataset.page : "README";
    const address = new URL(`${version}/${page}.html`, here).href;
    picker.add(new Option(version, address, false, version === picker.dataset.version));
  }
  picker.addEventListener("change", () => location.assign(picker.value));
}
