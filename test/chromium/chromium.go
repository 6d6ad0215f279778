// Package chromium drives a tab of Debian's Chromium for tests, and records what went wrong
// in it.
package chromium

import (
	"context"
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
	"github.com/chromedp/chromedp/kb"
)

// Each step of a page must be done in this time.
const stepTimeout = time.Minute

// Tab is a tab of Chromium. A step that fails or takes a minute ends the test.
type Tab struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	problems []string
	hosts    map[string]bool
}

// Open starts the program of HOLDFAST_CHROMIUM, or Debian's, with data of its own, and
// opens a tab of 1200 × 900 pixels. The end of the test closes it.
func Open(t testing.TB) *Tab {
	t.Helper()
	program := os.Getenv("HOLDFAST_CHROMIUM")
	if program == "" {
		program = "/usr/bin/chromium"
	}
	// Chromium's own services would reach for the network.
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.WindowSize(1200, 900))
	allocator, release := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(release)
	ctx, closeTab := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits until Chromium has left its directory
		closeTab()
	})
	b := &Tab{t: t, ctx: ctx, hosts: map[string]bool{}}
	chromedp.ListenTarget(ctx, b.record)
	// The first run starts Chromium, which ends with its context: it has no timeout.
	if err := chromedp.Run(ctx, network.Enable(), cdplog.Enable(), cdpruntime.Enable()); err != nil {
		t.Fatal(err)
	}
	return b
}

// record notes errors, refusals of a Content-Security-Policy (which Chromium logs), and the
// hosts of requests.
func (b *Tab) record(event any) {
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
		if u, err := url.Parse(e.Request.URL); err == nil && u.Scheme != "data" && u.Scheme != "about" && u.Scheme != "blob" {
			b.hosts[u.Hostname()] = true
		}
	}
}

// TakeProblems returns what went wrong since it was called last: errors and warnings of
// scripts and of Chromium, and requests to hosts other than 127.0.0.1.
func (b *Tab) TakeProblems() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.problems
	b.problems = nil
	for host := range b.hosts {
		if host != "127.0.0.1" {
			found = append(found, "a request went to "+host)
		}
	}
	b.hosts = map[string]bool{}
	return found
}

// Run does the actions, one after the other.
func (b *Tab) Run(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		var text string
		_ = chromedp.Run(b.ctx, chromedp.Evaluate("document.body.innerText", &text))
		b.t.Fatalf("%v; the page shows: %s; problems: %v", err, text, b.TakeProblems())
	}
}

// Evaluate an expression, and await it if it is a promise.
func (b *Tab) Evaluate(expression string, into any) {
	b.t.Helper()
	b.Run(chromedp.Evaluate(expression, into, func(p *cdpruntime.EvaluateParams) *cdpruntime.EvaluateParams { return p.WithAwaitPromise(true) }))
}

// Holds says whether an expression is true now.
func (b *Tab) Holds(expression string) (holds bool) {
	b.t.Helper()
	b.Evaluate("Boolean("+expression+")", &holds)
	return holds
}

// WaitUntil an expression is true.
func (b *Tab) WaitUntil(expression string) {
	b.t.Helper()
	b.Run(chromedp.Poll(expression, nil))
}

// Text is what the page shows.
func (b *Tab) Text() (text string) {
	b.t.Helper()
	b.Evaluate("document.body.innerText", &text)
	return text
}

// UseMedia sets the medium, such as print, and what the reader prefers by media feature,
// such as prefers-color-scheme.
func (b *Tab) UseMedia(medium string, preferences map[string]string) {
	b.t.Helper()
	var features []*emulation.MediaFeature
	for name, value := range preferences {
		features = append(features, &emulation.MediaFeature{Name: name, Value: value})
	}
	b.Run(emulation.SetEmulatedMedia().WithMedia(medium).WithFeatures(features))
}

// focused is the text of the element that has the focus, or else its type or its name.
const focused = `(document.activeElement.innerText || document.activeElement.type || document.activeElement.tagName)`

// Focused is the text of the element that has the focus, or else its type or its name.
func (b *Tab) Focused() (text string) {
	b.t.Helper()
	b.Evaluate(focused, &text)
	return text
}

// TabTo presses the tabulator until an element with this text has the focus.
func (b *Tab) TabTo(text string) {
	b.t.Helper()
	b.TabUntil(fmt.Sprintf("%s === %q", focused, text))
}

// TabUntil presses the tabulator, at most 60 times, until an expression is true.
func (b *Tab) TabUntil(expression string) {
	b.t.Helper()
	var passed []string
	for range 60 {
		b.Run(chromedp.KeyEvent(kb.Tab))
		if b.Holds(expression) {
			return
		}
		passed = append(passed, b.Focused())
	}
	b.t.Fatalf("the tabulator does not reach %s, but %q", expression, passed)
}
