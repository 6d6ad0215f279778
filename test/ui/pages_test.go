//go:build browser

package ui

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// declarations of one cluster, as a file.
func declarations(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "orders.yaml")
	text := "apiVersion: holdfast.dev/v1alpha1\nkind: PostgresCluster\nmetadata: {name: orders, namespace: shop}\nspec: {version: \"17\", replicas: 3, storage: {size: 20Gi}}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const ordersPage = "#/cluster/PostgresCluster/shop/orders"

// Each page shows what the API server has, in light and dark, without an error, a refusal
// of the Content-Security-Policy, a request to another host, or a violation of axe-core's.
func TestPages(t *testing.T) {
	a := goldenServer(t)
	address := startUI(t, a, "-f", declarations(t))
	b := openBrowser(t)
	b.Run(chromedp.Navigate(address))
	for _, page := range []struct {
		name, fragment string
		shows          []string
	}{
		{"fleet", "#/fleet", []string{"3 of 3 clusters", "pg/orders", "my/billing", "ec/config", "ImagePullBackOff", "Degraded", "Drifted"}},
		{"cluster", ordersPage, []string{"orders-2", "1.7 s", "follows orders-0", "every owned object is as declared", "Deadlock", "DriftReverted", "spec.parameters.max_wal_size"}},
		{"drift", "#/drift", []string{".spec.selector by kubectl-edit", "kubectl-scale", "kubectl holdfast drift ec/config -n platform --diff"}},
		{"backups", "#/backups", []string{"orders-20260301-0200", "Passed", "4m12s", "126 MiB", "Failed"}},
		{"insights", "#/insights", []string{"SlowStatement", "1204", "orders-0"}},
		{"recommendations", "#/recommendations", []string{"spec.parameters.max_wal_size", "1GB → 2GB", "87 of 100 checkpoints in 25 hours were forced", "restart", "kubectl holdfast recommend pg/orders -n shop -o patch"}},
		{"plan", "#/plan", []string{"PostgresCluster shop/orders", ".spec.storage.size"}},
	} {
		for _, scheme := range []string{"light", "dark"} {
			b.useScheme(scheme)
			b.open(address, page.fragment, page.shows[0])
			text := b.Text()
			for _, want := range page.shows {
				if !strings.Contains(text, want) {
					t.Errorf("%s does not show %q: %s", page.name, want, text)
				}
			}
			b.CheckAccessibility(page.name + ", " + scheme)
			for _, problem := range b.TakeProblems() {
				t.Errorf("%s, %s: %s", page.name, scheme, problem)
			}
			if scheme == "light" || page.name == "cluster" {
				b.screenshot("ui-" + page.name + map[string]string{"light": "", "dark": "-dark"}[scheme])
			}
		}
	}
	checkOnlyRead(t, a)
}

// checkOnlyRead: whatever was shown, the API server was only read, and no Secret was.
func checkOnlyRead(t *testing.T, a *apiServer) {
	t.Helper()
	asked := a.asked()
	if len(asked) == 0 {
		t.Error("the API server was not asked")
	}
	for _, request := range asked {
		if !strings.HasPrefix(request, http.MethodGet+" ") || strings.Contains(request, "/secrets") || strings.Contains(request, "/exec") {
			t.Errorf("the API server was asked %s", request)
		}
	}
}

// The test sees what it is there to see.
func TestProblemsAreSeen(t *testing.T) {
	address := startUI(t, goldenServer(t))
	b := openBrowser(t)
	b.Run(chromedp.Navigate(address))
	b.open(address, "#/fleet", "clusters")
	b.TakeProblems()
	b.Evaluate(`document.body.insertAdjacentHTML("beforeend", "<p style='color:red'>x</p>"); console.error("planted"); fetch("http://127.0.0.2:9/").catch(() => 0)`, nil)
	found := strings.Join(b.TakeProblems(), "\n")
	for _, want := range []string{"planted", "style-src", "connect-src"} {
		if !strings.Contains(found, want) {
			t.Errorf("%q was not seen in: %s", want, found)
		}
	}
}

// A second browser is not let in with the same address.
func TestAddressOpensOnce(t *testing.T) {
	address := startUI(t, goldenServer(t))
	first, second := openBrowser(t), openBrowser(t)
	first.Run(chromedp.Navigate(address))
	first.open(address, "#/fleet", "3 of 3 clusters")
	second.Run(chromedp.Navigate(address))
	if text := second.Text(); !strings.Contains(text, "opens once") || strings.Contains(text, "orders") {
		t.Errorf("the second browser shows: %s", text)
	}
}

// What may not be read is named, and the rest is shown.
func TestMissingRights(t *testing.T) {
	a := startAPIServer(t, &apiServer{lists: map[string][]any{"postgresclusters": {orders()}}})
	address := startUI(t, a)
	b := openBrowser(t)
	b.Run(chromedp.Navigate(address))
	for fragment, shows := range map[string][]string{
		"#/fleet":   {"could not be read", "mysqlclusters", "pg/orders"},
		"#/backups": {"could not be read", "backups", "orders-20260301-0200"},
		ordersPage:  {"could not be read", "pods", "persistentvolumeclaims", "events", "3 of 3 members serve"},
	} {
		b.open(address, fragment, shows[0])
		text := b.Text()
		for _, want := range shows {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not show %q: %s", fragment, want, text)
			}
		}
		b.CheckAccessibility(fragment)
		if problems := b.TakeProblems(); len(problems) > 0 {
			t.Errorf("%s: %v", fragment, problems)
		}
	}
	checkOnlyRead(t, a)
}

// Every page is reached and left without a mouse, and its title gets the focus.
func TestKeyboardAlone(t *testing.T) {
	address := startUI(t, goldenServer(t))
	b := openBrowser(t)
	b.Run(chromedp.Navigate(address))
	b.open(address, "#/fleet", "3 of 3 clusters")
	b.TabTo("Skip to the content")
	b.Run(chromedp.KeyEvent(kb.Enter))
	if at := b.Focused(); at != "Fleet" {
		t.Errorf("the link to the content leads to %q", at)
	}
	b.TabTo("search")
	b.Run(chromedp.KeyEvent("orders"), chromedp.Poll(`document.getElementById("count").innerText.startsWith("1 of 3")`, nil))
	b.TabTo("pg/orders")
	b.Run(chromedp.KeyEvent(kb.Enter), chromedp.Poll(`document.activeElement.id === "title" && document.activeElement.innerText === "shop/orders"`, nil))
	for _, title := range []string{"Drift", "Backups and drills", "Insights", "Recommendations", "Plan", "Fleet"} {
		b.Run(chromedp.Evaluate(`document.activeElement.blur(); document.querySelector(".skip").focus()`, nil))
		b.TabTo(title)
		b.Run(chromedp.KeyEvent(kb.Enter), chromedp.Poll(fmt.Sprintf(`document.activeElement.id === "title" && document.activeElement.innerText === %q`, title), nil))
	}
	if problems := b.TakeProblems(); len(problems) > 0 {
		t.Error(problems)
	}
}

// A fleet of 1,000 is shown page by page; how long that takes is printed.
func TestFleetOfThousand(t *testing.T) {
	var fleet []any
	for i := range 1000 {
		c := orders()
		c.Name, c.UID = fmt.Sprintf("orders-%04d", i), ""
		fleet = append(fleet, c)
	}
	address := startUI(t, startAPIServer(t, &apiServer{lists: map[string][]any{"postgresclusters": fleet, "mysqlclusters": {}, "etcdclusters": {}}}))
	b := openBrowser(t)
	b.Run(chromedp.Navigate(address))
	var took []time.Duration
	for range 5 {
		b.Run(chromedp.Navigate("about:blank"))
		begun := time.Now()
		b.open(address, "#/fleet", "1000 of 1000 clusters")
		took = append(took, time.Since(begun).Round(time.Millisecond))
	}
	slices.Sort(took)
	var answer float64
	b.Evaluate(`(async () => { const t = performance.now(); await (await fetch("/api/fleet")).json(); return performance.now() - t; })()`, &answer)
	t.Logf("a fleet of 1,000: shown in %v (5 times), of which the answer takes %.0f ms", took, answer)
	var rows int
	b.Evaluate(`document.querySelectorAll("tbody tr").length`, &rows)
	if rows != 50 {
		t.Errorf("%d rows", rows)
	}
	b.Run(chromedp.Click(`//button[text()="Next page"]`, chromedp.BySearch), chromedp.Poll(`document.querySelector("main").innerText.includes("pg/orders-0050")`, nil))
}
