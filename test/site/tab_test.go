//go:build browser

package site

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/holdfast-db/holdfast/test/chromium"
)

// Each step of a page must be done in this time.
const stepTimeout = time.Minute

// tab is a tab of Chromium, with what went wrong in it.
type tab struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	problems []string
}

func openTab(t testing.TB) *tab {
	t.Helper()
	allocator, release := chromedp.NewExecAllocator(context.Background(), chromium.Options(t.TempDir())...)
	t.Cleanup(release)
	ctx, closeTab := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits until Chromium has left its directory
		closeTab()
	})
	b := &tab{t: t, ctx: ctx}
	chromedp.ListenTarget(ctx, b.record)
	if err := chromedp.Run(ctx, network.Enable(), cdplog.Enable(), cdpruntime.Enable()); err != nil {
		t.Fatal(err)
	}
	return b
}

// record notes errors, warnings, and requests that leave this machine.
func (b *tab) record(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *cdpruntime.EventExceptionThrown:
		b.problems = append(b.problems, "exception: "+e.ExceptionDetails.Error())
	case *cdpruntime.EventConsoleAPICalled:
		if e.Type == cdpruntime.APITypeError || e.Type == cdpruntime.APITypeWarning {
			b.problems = append(b.problems, fmt.Sprintf("console.%s: %s", e.Type, e.Args[0].Value))
		}
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.LevelError || e.Entry.Level == cdplog.LevelWarning {
			b.problems = append(b.problems, fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(e.Request.URL)
		if err != nil || u.Hostname() != "127.0.0.1" && u.Scheme != "data" && u.Scheme != "about" && u.Scheme != "blob" {
			b.problems = append(b.problems, "a request went to "+e.Request.URL)
		}
	}
}

// takeProblems returns what went wrong since it was called last.
func (b *tab) takeProblems() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.problems
	b.problems = nil
	return found
}

func (b *tab) run(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		b.t.Fatalf("%v; problems: %v", err, b.takeProblems())
	}
}

// open goes to a page, and waits until its script has taken it over.
func (b *tab) open(address string) {
	b.t.Helper()
	b.run(chromedp.Navigate(address), chromedp.Poll(
		`document.readyState === "complete" && document.querySelector("#app")?.__vue_app__ && !document.querySelector(".diagram pre")`, nil))
}

func (b *tab) evaluate(expression string, into any) {
	b.t.Helper()
	b.run(chromedp.Evaluate(expression, into, func(p *cdpruntime.EvaluateParams) *cdpruntime.EvaluateParams { return p.WithAwaitPromise(true) }))
}

func (b *tab) holds(expression string) bool {
	b.t.Helper()
	var holds bool
	b.evaluate("Boolean("+expression+")", &holds)
	return holds
}

// waitUntil an expression holds.
func (b *tab) waitUntil(expression string) {
	b.t.Helper()
	b.run(chromedp.Poll(expression, nil))
}

// useMedia sets the medium, such as print, and what the reader prefers.
func (b *tab) useMedia(medium string, preferences map[string]string) {
	b.t.Helper()
	var features []*emulation.MediaFeature
	for name, value := range preferences {
		features = append(features, &emulation.MediaFeature{Name: name, Value: value})
	}
	b.run(emulation.SetEmulatedMedia().WithMedia(medium).WithFeatures(features))
}

// checkAccessibility runs axe-core's rules on the page.
func (b *tab) checkAccessibility(what string) {
	b.t.Helper()
	source, err := os.ReadFile("../../site/node_modules/axe-core/axe.min.js")
	if err != nil {
		b.t.Fatalf("%v: make site installs it", err)
	}
	var report string
	b.run(chromedp.Evaluate(string(source)+"; null", nil))
	b.evaluate(`axe.run(document, {resultTypes: ["violations"]}).then((r) => JSON.stringify({passes: r.passes.length,
		violations: r.violations.map((v) => v.id + ": " + v.help + " at " + v.nodes.map((n) => n.target.join(" ")).join(", "))}))`, &report)
	var result struct {
		Passes     int
		Violations []string
	}
	if err := json.Unmarshal([]byte(report), &result); err != nil || result.Passes == 0 {
		b.t.Fatalf("axe-core ran no rule: %v, %s", err, report)
	}
	for _, v := range result.Violations {
		b.t.Errorf("%s: %s", what, v)
	}
}
