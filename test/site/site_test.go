//go:build browser

package site

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/holdfast-db/holdfast/test/chromium"
)

// built is what make site wrote.
const built = "../../build/site"

// serve serves the site, and lists the paths of its pages.
func serve(t *testing.T) (address string, pages []string) {
	t.Helper()
	err := filepath.WalkDir(built, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".html" {
			pages = append(pages, "/"+strings.TrimPrefix(filepath.ToSlash(path), built+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatalf("%v: run make site", err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(built)))
	t.Cleanup(server.Close)
	return server.URL, pages
}

// tab is a tab of Chromium that shows the site.
type tab struct{ *chromium.Tab }

func openTab(t *testing.T) tab {
	t.Helper()
	return tab{chromium.Open(t)}
}

// open goes to a page, and waits until its script has taken it over and drawn its diagrams.
func (b tab) open(address string) {
	b.Run(chromedp.Navigate(address), chromedp.Poll(
		`document.readyState === "complete" && document.querySelector("#app")?.__vue_app__ && !document.querySelector(".diagram pre")`, nil))
}

// Every page of docs is a page of the site.
func TestSiteHasEveryPage(t *testing.T) {
	_, pages := serve(t)
	err := filepath.WalkDir("../../docs", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".md" {
			return err
		}
		page := strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(path), "../../docs"), ".md") + ".html"
		if page = strings.Replace(page, "README.html", "index.html", 1); !slices.Contains(pages, page) {
			t.Errorf("the site has no %s", page)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// links are what a page refers to, and the anchors that it has.
type links struct {
	Hrefs, Resources, Anchors []string
}

const readLinks = `({
	hrefs: [...document.querySelectorAll("a[href]")].map((a) => a.href),
	resources: [...document.querySelectorAll("[src], link[href]")].map((e) => e.src || e.href),
	anchors: [...document.querySelectorAll("[id]")].map((e) => e.id),
})`

// Every page opens without an error and without a request off this machine, and fits a
// phone. Every link leads to a page of the site and to an anchor on it.
func TestSitePages(t *testing.T) {
	address, pages := serve(t)
	b := openTab(t)
	found := map[string]links{}
	for _, page := range pages {
		b.Run(chromedp.EmulateViewport(1200, 900))
		b.open(address + page)
		var here links
		b.Evaluate(readLinks, &here)
		found[page] = here
		b.Run(chromedp.EmulateViewport(390, 800))
		if !b.Holds(`document.documentElement.scrollWidth <= 390`) {
			var wide string
			b.Evaluate(`[...document.querySelectorAll("main *")].filter((e) => e.getBoundingClientRect().right > 391).slice(0, 3).map((e) => e.outerHTML.slice(0, 120)).join("\n")`, &wide)
			t.Errorf("%s is wider than a phone: %s", page, wide)
		}
		for _, problem := range b.TakeProblems() {
			t.Errorf("%s: %s", page, problem)
		}
	}
	checked := 0
	for page, here := range found {
		for _, resource := range here.Resources {
			if !strings.HasPrefix(resource, address) && !strings.HasPrefix(resource, "data:") {
				t.Errorf("%s loads %s", page, resource)
			}
		}
		for _, href := range here.Hrefs {
			if problem := checkLink(address, href, found); problem != "" {
				t.Errorf("%s: %s %s", page, href, problem)
			}
			checked++
		}
	}
	if checked < 1000 {
		t.Errorf("only %d links were found", checked)
	}
}

// checkLink says what is wrong with a link, if anything is. Links to other sites are not
// followed.
func checkLink(address, href string, pages map[string]links) string {
	u, err := url.Parse(href)
	if err != nil {
		return err.Error()
	}
	if !strings.HasPrefix(href, address) {
		if u.Scheme != "https" && u.Scheme != "mailto" {
			return "leaves the site, and not by https"
		}
		return ""
	}
	page := u.Path
	if strings.HasSuffix(page, "/") {
		page += "index.html"
	}
	target, exists := pages[page]
	if !exists {
		if _, err := os.Stat(built + page); err != nil {
			return "leads to no page"
		}
		return ""
	}
	if u.Fragment != "" && !slices.Contains(target.Anchors, u.Fragment) {
		return "leads to no anchor"
	}
	return ""
}

// A search finds a term, and leads to its page.
func TestSiteSearch(t *testing.T) {
	address, _ := serve(t)
	b := openTab(t)
	b.Run(chromedp.EmulateViewport(1200, 900))
	b.open(address + "/")
	b.Run(chromedp.Click(".VPNavBarSearchButton, .DocSearch-Button", chromedp.ByQuery))
	b.WaitUntil(`document.querySelector(".VPLocalSearchBox input")`)
	b.Run(chromedp.SendKeys(".VPLocalSearchBox input", "pg_verifybackup", chromedp.ByQuery))
	b.WaitUntil(`document.querySelector(".VPLocalSearchBox .result mark")`)
	b.Run(chromedp.SendKeys(".VPLocalSearchBox input", kb.Enter, chromedp.ByQuery))
	b.WaitUntil(`location.pathname !== "/" && document.querySelector("main").innerText.includes("pg_verifybackup")`)
	for _, problem := range b.TakeProblems() {
		t.Error(problem)
	}
}

// Content, search, theme and navigation are reached without a mouse.
func TestSiteKeyboard(t *testing.T) {
	address, _ := serve(t)
	b := openTab(t)
	b.Run(chromedp.EmulateViewport(1400, 900))
	b.open(address + "/guides/restore.html")
	b.TabTo("Skip to content")
	b.Run(chromedp.KeyEvent(kb.Enter))
	b.WaitUntil(`document.activeElement.id === "VPContent"`)

	b.Run(chromedp.KeyEvent("/"))
	b.WaitUntil(`document.activeElement.matches(".VPLocalSearchBox input")`)
	b.Run(chromedp.KeyEvent("max_connections"))
	b.WaitUntil(`document.querySelector(".VPLocalSearchBox .result mark")`)
	b.Run(chromedp.KeyEvent(kb.Enter))
	b.WaitUntil(`!location.pathname.endsWith("/guides/restore.html") && document.querySelector("main").innerText.includes("max_connections")`)

	b.open(address + "/")
	b.TabUntil(`document.activeElement.matches(".VPSwitchAppearance")`)
	const dark = `document.documentElement.classList.contains("dark")`
	was := b.Holds(dark)
	b.Run(chromedp.KeyEvent(kb.Enter))
	b.WaitUntil(fmt.Sprintf(`%s !== %t`, dark, was))

	b.TabTo("Run etcd")
	b.Run(chromedp.KeyEvent(kb.Enter))
	b.WaitUntil(`location.pathname === "/guides/etcd.html" && document.querySelector("main h1").innerText.includes("Run etcd")`)
	for _, problem := range b.TakeProblems() {
		t.Error(problem)
	}
}

// The recording of a drift is shown on the first page and in its guide.
func TestSiteShowsTheRecording(t *testing.T) {
	address, _ := serve(t)
	b := openTab(t)
	for _, page := range []string{"/index.html", "/guides/drift.html"} {
		b.open(address + page)
		b.WaitUntil(`[...document.querySelectorAll("main img")].some((e) => e.alt.includes("the drift is detected") && e.complete && e.naturalWidth > 100)`)
	}
}

// The theme follows the system, until the reader chooses one.
func TestSiteTheme(t *testing.T) {
	address, _ := serve(t)
	b := openTab(t)
	b.Run(chromedp.EmulateViewport(1400, 900))
	const dark = `document.documentElement.classList.contains("dark")`
	for scheme, want := range map[string]bool{"dark": true, "light": false} {
		b.UseMedia("", map[string]string{"prefers-color-scheme": scheme})
		b.open(address + "/")
		if b.Holds(dark) != want {
			t.Errorf("with a %s system, the page is dark: %t", scheme, !want)
		}
	}
	b.UseMedia("", map[string]string{"prefers-color-scheme": "light"})
	b.open(address + "/")
	b.Run(chromedp.Click(".VPNavBarAppearance .VPSwitchAppearance", chromedp.ByQuery))
	b.WaitUntil(dark)
	b.open(address + "/architecture.html")
	if !b.Holds(dark) {
		t.Error("the chosen theme is not kept")
	}
}

// Pages move nothing for readers who prefer that, and print without navigation.
func TestSiteMedia(t *testing.T) {
	address, _ := serve(t)
	b := openTab(t)
	b.Run(chromedp.EmulateViewport(1200, 900))
	const moves = `[...document.querySelectorAll("*")].some((e) => parseFloat(getComputedStyle(e).transitionDuration) > 0)`
	b.open(address + "/guides/restore.html")
	if !b.Holds(moves) {
		t.Error("nothing moves, so that the test shows nothing")
	}
	b.UseMedia("", map[string]string{"prefers-reduced-motion": "reduce"})
	if b.Holds(moves) {
		t.Error("elements move although the reader prefers reduced motion")
	}
	b.UseMedia("print", nil)
	if b.Holds(`[...document.querySelectorAll(".VPNav, .VPSidebar, .aside, button.copy")].some((e) => e.offsetParent !== null)`) {
		t.Error("navigation is printed")
	}
	if !b.Holds(`document.querySelector("main h1").offsetParent !== null`) {
		t.Error("the page's text is not printed")
	}
}

// axe-core finds nothing on any page in either theme, nor on each sort of page on a phone.
func TestSiteAccessibility(t *testing.T) {
	address, pages := serve(t)
	sorts := []string{"/index.html", "/guides/restore.html", "/guides/flux.html", "/reference/api.html", "/reference/conditions.html", "/architecture.html", "/404.html"}
	b := openTab(t)
	for _, scheme := range []string{"light", "dark"} {
		b.UseMedia("", map[string]string{"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"})
		for width, checked := range map[int64][]string{1200: pages, 390: sorts} {
			b.Run(chromedp.EmulateViewport(width, 900))
			for _, page := range checked {
				b.open(address + page)
				b.CheckAccessibility(fmt.Sprintf("%s, %s, %d wide", page, scheme, width))
			}
		}
	}
}

// Links to edit a page are there only with the address of a repository.
func TestSiteEditLinks(t *testing.T) {
	for repository, want := range map[string]string{"": "", "https://git.example/holdfast/": "https://git.example/holdfast/edit/main/docs/:path"} {
		command := exec.CommandContext(t.Context(), "node", "--input-type=module", "-e",
			`const { default: config } = await import("./.vitepress/config.mjs"); process.stdout.write(config.themeConfig.editLink?.pattern ?? "")`)
		command.Dir = "../../site"
		command.Env = append(os.Environ(), "SITE_REPOSITORY="+repository)
		output, err := command.Output()
		if err != nil || string(output) != want {
			t.Errorf("with the repository %q, the link is %q: %v", repository, output, err)
		}
	}
}
