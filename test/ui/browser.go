package ui

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/holdfast-db/holdfast/test/chromium"
)

// Browser is a tab of Chromium that shows the pages of one kubectl holdfast ui.
type Browser struct {
	*chromium.Tab
	t    testing.TB
	base string
}

// OpenBrowser opens the address that kubectl holdfast ui prints, which opens once.
func OpenBrowser(t testing.TB, address string) *Browser {
	t.Helper()
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	b := &Browser{Tab: chromium.Open(t), t: t, base: "http://" + parsed.Host + "/"}
	b.Run(chromedp.Navigate(address))
	return b
}

// Open goes to a page by its address's fragment, and waits until it shows a text.
func (b *Browser) Open(fragment, ready string) {
	b.t.Helper()
	b.Run(chromedp.Navigate(b.base + fragment))
	b.WaitUntil(fmt.Sprintf(`document.querySelector("main") && document.querySelector("main").innerText.includes(%q)`, ready))
}

// UseScheme has the pages shown in light or in dark.
func (b *Browser) UseScheme(scheme string) {
	b.t.Helper()
	b.UseMedia("", map[string]string{"prefers-color-scheme": scheme})
}

// Page is one of the pages, and what it shows. The first is waited for.
type Page struct {
	Name, Fragment string
	Shows          []string
}

// Schemes are those that the pages have.
var Schemes = []string{"light", "dark"}

// CheckPage opens a page: it shows what it should, without an error, a refusal of the
// Content-Security-Policy, a request to another host, or a violation of axe-core's.
func (b *Browser) CheckPage(p Page, scheme string) {
	b.t.Helper()
	b.UseScheme(scheme)
	b.Open(p.Fragment, p.Shows[0])
	text := b.Text()
	for _, want := range p.Shows {
		if !strings.Contains(text, want) {
			b.t.Errorf("%s does not show %q: %s", p.Name, want, text)
		}
	}
	b.CheckAccessibility(p.Name + ", " + scheme)
	b.CheckProblems(p.Name + ", " + scheme)
}

// CheckProblems fails the test for what went wrong since it was called last.
func (b *Browser) CheckProblems(what string) {
	b.t.Helper()
	for _, problem := range b.TakeProblems() {
		b.t.Errorf("%s: %s", what, problem)
	}
}

// CheckKeyboard opens a page, has each of its controls used without a mouse, and returns them.
func (b *Browser) CheckKeyboard(p Page) []chromium.Control {
	b.t.Helper()
	b.Open(p.Fragment, p.Shows[0])
	controls, faults := b.FindKeyboardFaults()
	for _, fault := range faults {
		b.t.Errorf("%s: %s", p.Name, fault)
	}
	if len(controls) == 0 {
		b.t.Errorf("%s has no controls", p.Name)
	}
	b.CheckProblems(p.Name)
	return controls
}

// FollowLinks presses Enter on each link of a page: it leads to where it says, to a page
// whose title has the focus.
func (b *Browser) FollowLinks(p Page, controls []chromium.Control) {
	b.t.Helper()
	for i, c := range controls {
		if c.Kind != chromium.Link {
			continue
		}
		b.Open(p.Fragment, p.Shows[0])
		if again := b.Controls(); !slices.Equal(again, controls) {
			b.t.Fatalf("%s has other controls when it is opened again: %v and %v", p.Name, controls, again)
		}
		b.Evaluate(fmt.Sprintf("controls[%d].focus()", i), nil)
		b.Run(chromedp.KeyEvent(kb.Enter))
		b.WaitUntil(fmt.Sprintf(`location.href === %q && (document.activeElement.id === "title" || controls[%[2]d].getAttribute("aria-current") === "page")`, c.Href, i))
	}
	b.CheckProblems(p.Name)
}
