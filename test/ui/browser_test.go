//go:build browser

package ui

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/holdfast-db/holdfast/internal/plugin"
	"github.com/holdfast-db/holdfast/test/chromium"
)

var updateScreenshots = flag.Bool("update", false, "write the screenshots of docs/images")

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

// browser is a tab of Chromium that shows the pages.
type browser struct {
	*chromium.Tab
	t testing.TB
}

func openBrowser(t testing.TB) *browser {
	t.Helper()
	return &browser{chromium.Open(t), t}
}

// open goes to a page by its address's fragment, and waits until it shows data.
func (b *browser) open(address, fragment, ready string) {
	b.t.Helper()
	base, err := url.Parse(address)
	if err != nil {
		b.t.Fatal(err)
	}
	b.Run(chromedp.Navigate("http://"+base.Host+"/"+fragment), chromedp.Poll(
		fmt.Sprintf(`document.querySelector("main") && document.querySelector("main").innerText.includes(%q)`, ready), nil))
}

func (b *browser) useScheme(scheme string) {
	b.t.Helper()
	b.UseMedia("", map[string]string{"prefers-color-scheme": scheme})
}

// screenshot writes a picture of the window below docs, on request.
func (b *browser) screenshot(name string) {
	b.t.Helper()
	if !*updateScreenshots {
		return
	}
	var picture []byte
	b.Run(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		picture, err = page.CaptureScreenshot().WithFormat(page.CaptureScreenshotFormatPng).WithOptimizeForSpeed(false).Do(ctx)
		return err
	}))
	if err := os.WriteFile(filepath.Join("..", "..", "docs", "images", name+".png"), picture, 0o600); err != nil {
		b.t.Fatal(err)
	}
}
