//go:build browser

package ui

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/holdfast-db/holdfast/internal/plugin"
	"github.com/holdfast-db/holdfast/test/goldenapi"
)

var updateScreenshots = flag.Bool("update", false, "write the screenshots of docs/images")

// startUI runs kubectl holdfast ui, and returns the address that it prints.
func startUI(t testing.TB, a *goldenapi.Server, args ...string) string {
	t.Helper()
	read, write := io.Pipe()
	root := plugin.NewRootCommand("test")
	root.SetArgs(append([]string{"ui", "--kubeconfig", a.Kubeconfig(t)}, args...))
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

// screenshot writes a picture of the window below docs, on request.
func (b *Browser) screenshot(name string) {
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
