//go:build browser

package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/holdfast-db/holdfast/internal/plugin"
)

var updateScreenshots = flag.Bool("update", false, "write the screenshots of docs/images")

// chromium's start and each page must be done in these times.
const browserTimeout = time.Minute

// startUI runs kubectl holdfast ui, and returns the address that it prints.
func startUI(t testing.TB, a *apiServer, args ...string) string {
	t.Helper()
	read, write := io.Pipe()
	root := plugin.NewRootCommand("test")
	root.SetArgs(append([]string{"ui", "--kubeconfig", a.kubeconfig(t)}, args...))
	root.SetOut(write)
	root.SetErr(io.Discard)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		_ = write.CloseWithError(fmt.Errorf("the command ended: %w", err))
		ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("kubectl holdfast ui: %v", err)
		}
	})
	line, err := bufio.NewReader(read).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, "Open "))
}

// browser is a tab of Chromium, with what went wrong in it.
type browser struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	problems []string
	hosts    map[string]bool
}

func openBrowser(t testing.TB) *browser {
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
	b := &browser{t: t, ctx: ctx, hosts: map[string]bool{}}
	chromedp.ListenTarget(ctx, b.record)
	b.run(network.Enable(), cdplog.Enable(), cdpruntime.Enable())
	return b
}

// record notes errors, refusals of the Content-Security-Policy (which Chromium logs), and
// the hosts of requests.
func (b *browser) record(event any) {
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
		if u, err := url.Parse(e.Request.URL); err == nil && u.Scheme != "data" && u.Scheme != "about" {
			b.hosts[u.Hostname()] = true
		}
	}
}

func (b *browser) run(actions ...chromedp.Action) {
	b.t.Helper()
	ctx := b.ctx
	if chromedp.FromContext(ctx).Browser != nil {
		limited, cancel := context.WithTimeout(ctx, browserTimeout)
		defer cancel()
		ctx = limited
	}
	if err := chromedp.Run(ctx, actions...); err != nil {
		var text string
		_ = chromedp.Run(b.ctx, chromedp.Evaluate("document.body.innerText", &text))
		b.t.Fatalf("%v; the page shows: %s; problems: %v", err, text, b.takeProblems())
	}
}

// takeProblems returns what went wrong since it was called last.
func (b *browser) takeProblems() []string {
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

// open goes to a page by its address's fragment, and waits until it shows data.
func (b *browser) open(address, fragment, ready string) {
	b.t.Helper()
	base, err := url.Parse(address)
	if err != nil {
		b.t.Fatal(err)
	}
	b.run(chromedp.Navigate("http://"+base.Host+"/"+fragment), chromedp.Poll(
		fmt.Sprintf(`document.querySelector("main") && document.querySelector("main").innerText.includes(%q)`, ready), nil))
}

func (b *browser) evaluate(expression string, into any) {
	b.t.Helper()
	b.run(chromedp.Evaluate(expression, into, func(p *cdpruntime.EvaluateParams) *cdpruntime.EvaluateParams { return p.WithAwaitPromise(true) }))
}

func (b *browser) text() (text string) {
	b.t.Helper()
	b.evaluate("document.body.innerText", &text)
	return text
}

func (b *browser) useScheme(scheme string) {
	b.t.Helper()
	b.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
}

// checkAccessibility runs axe-core's rules on the page.
func (b *browser) checkAccessibility(what string) {
	b.t.Helper()
	source, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		b.t.Fatalf("%v: make ui-test installs it", err)
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

// screenshot writes a picture of the window below docs, on request.
func (b *browser) screenshot(name string) {
	b.t.Helper()
	if !*updateScreenshots {
		return
	}
	var picture []byte
	b.run(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		picture, err = page.CaptureScreenshot().WithFormat(page.CaptureScreenshotFormatPng).WithOptimizeForSpeed(false).Do(ctx)
		return err
	}))
	if err := os.WriteFile(filepath.Join("..", "..", "docs", "images", name+".png"), picture, 0o600); err != nil {
		b.t.Fatal(err)
	}
}
