//go:build browser

package ui

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/test/chromium"
	"github.com/holdfast-db/holdfast/test/goldenapi"
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

// pages are all of them, with what they show of the golden data.
var pages = []Page{
	{"fleet", "#/fleet", []string{"3 of 3 clusters", "pg/orders", "my/billing", "ec/config", "ImagePullBackOff", "Degraded", "Drifted"}},
	{"cluster", ordersPage, []string{"orders-2", "1.7 s", "follows orders-0", "every owned object is as declared", "Deadlock", "DriftReverted", "spec.parameters.max_wal_size"}},
	{"drift", "#/drift", []string{".spec.selector by kubectl-edit", "kubectl-scale", "kubectl get Service/orders-rw -n shop -o jsonpath='{.spec.selector}'", "any field may hold a secret", "kubectl holdfast drift ec/config -n platform --diff"}},
	{"backups", "#/backups", []string{"orders-20260301-0200", "Passed", "4m12s", "126 MiB", "Failed"}},
	{"insights", "#/insights", []string{"SlowStatement", "1204", "orders-0"}},
	{"recommendations", "#/recommendations", []string{"spec.parameters.max_wal_size", "1GB → 2GB", "87 of 100 checkpoints in 25 hours were forced", "restart", "The operator changes none of these: commit what you agree with", "kubectl holdfast recommend pg/orders -n shop -o patch"}},
	{"plan", "#/plan", []string{"PostgresCluster shop/orders", ".spec.storage.size"}},
}

// Each page shows what the API server has, in light and dark.
func TestPages(t *testing.T) {
	a := goldenServer(t)
	b := OpenBrowser(t, startUI(t, a, "-f", declarations(t)))
	for _, page := range pages {
		for _, scheme := range Schemes {
			b.CheckPage(page, scheme)
			if scheme == "light" || page.Name == "cluster" {
				b.screenshot("ui-" + page.Name + map[string]string{"light": "", "dark": "-dark"}[scheme])
			}
		}
	}
	checkOnlyRead(t, a)
}

// Pages about several clusters have their parts several times, each with a name of its own.
func TestPagesOfSeveralClusters(t *testing.T) {
	var fleet []any
	for _, name := range []string{"orders", "returns", "reviews"} {
		c := orders()
		c.Name = name
		c.Status.Conditions[2] = condition("Synced", "False", "Drifted", "Service/"+name+" differs from what is declared")
		fleet = append(fleet, c)
	}
	a := goldenapi.Start(t, &goldenapi.Server{Lists: map[string][]any{"postgresclusters": fleet, "mysqlclusters": {}, "etcdclusters": {}, "backups": {}}})
	b := OpenBrowser(t, startUI(t, a))
	for _, page := range []Page{
		{"drift", "#/drift", []string{"drift pg/orders", "drift pg/returns", "drift pg/reviews"}},
		{"recommendations", "#/recommendations", []string{"recommend pg/orders", "recommend pg/returns", "recommend pg/reviews"}},
	} {
		b.CheckPage(page, "light")
	}
}

// What the operator does with recommendations is said of each cluster: with mode Apply, what it
// tries and keeps, and why it does not try a value.
func TestRecommendationsByMode(t *testing.T) {
	tried := orders()
	tried.Name, tried.Spec.Tuning.Mode = "returns", v1alpha1.TuningApply
	tried.Status.Recommendations[0].Untried = &v1alpha1.UntriedStatus{Reason: "VolumeUsage", Message: "more than 70 % of a member's volume are in use", Since: before(time.Hour)}
	tried.Status.Recommendations = append(tried.Status.Recommendations, v1alpha1.RecommendationStatus{
		Field: "spec.parameters.work_mem", Current: "4MB", Evidence: "200 temporary files", Since: before(time.Hour),
		Untried: &v1alpha1.UntriedStatus{Reason: "MemoryLimit", Message: "spec.resources.limits.memory allows no larger value", Since: before(time.Hour)},
	})
	kept := orders()
	kept.Name, kept.Spec.Tuning.Mode, kept.Status.Recommendations = "reviews", v1alpha1.TuningApply, nil
	kept.Status.Tuning = &v1alpha1.TuningStatus{
		Settings: []v1alpha1.TunedSettingStatus{{Name: "max_wal_size", Value: "2GB", From: "1GB", Evidence: "47 % of the forced checkpoints were left", Since: before(time.Hour)}},
		Trial:    &v1alpha1.TuningTrialStatus{Name: "work_mem", Value: "8MB", From: "4MB", Evidence: "100 temporary files", Since: before(time.Hour)},
		Resting: []v1alpha1.RestingSettingStatus{
			{Name: "max_wal_size", Value: "4GB", Reason: "it is no better", Quarantined: true, Since: before(time.Hour), Until: metav1.NewTime(time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC))},
		},
	}
	a := goldenapi.Start(t, &goldenapi.Server{Lists: map[string][]any{"postgresclusters": {orders(), tried, kept}, "mysqlclusters": {}, "etcdclusters": {}, "backups": {}}})
	b := OpenBrowser(t, startUI(t, a))
	b.CheckPage(Page{"recommendations", "#/recommendations", []string{
		"pg/orders", "The operator changes none of these: commit what you agree with",
		"pg/returns", "a value that is tried or kept is in force without a commit", "more than 70 % of a member's volume are in use (VolumeUsage)", "4MB, and no larger value fits", "No setting is kept or tried.",
		"pg/reviews", "Nothing is recommended.", "1GB → 2GB", "kept", "47 % of the forced checkpoints were left", "4MB → 8MB", "in quarantine until 2026-04-01", "it is no better",
	}}, "light")
	if text := b.Text(); strings.Count(text, "The operator changes none of these") != 1 || strings.Count(text, "The operator tries settings here") != 2 {
		t.Errorf("what the operator does is said wrongly: %s", text)
	}
	checkOnlyRead(t, a)
}

// What a Secret has is not shown, and how to see it is not said either.
func TestDriftOfASecret(t *testing.T) {
	c := orders()
	c.Status.Drift.Last = []v1alpha1.DriftRecord{
		{Time: before(time.Minute), Object: "Secret/orders-app", Path: ".data.password", Manager: "kubectl-edit", Operation: "Update", Action: "Reverted"},
		{Time: before(time.Minute), Object: "Service/orders-rw", Path: `.spec.ports[name="client"].port`, Manager: "kubectl-edit", Operation: "Update", Action: "Reverted"},
		{Time: before(time.Minute), Object: "ConfigMap/orders-config", Path: ".data", Manager: "kubectl-edit", Operation: "Update", Action: "Reported"},
	}
	a := goldenapi.Start(t, &goldenapi.Server{Lists: map[string][]any{"postgresclusters": {c}, "mysqlclusters": {}, "etcdclusters": {}, "backups": {}}})
	b := OpenBrowser(t, startUI(t, a))
	b.CheckPage(Page{"drift", "#/drift", []string{".data.password by kubectl-edit", "of a Secret: it is not shown", "kubectl get Service/orders-rw -n shop -o yaml", "kubectl holdfast drift pg/orders -n shop --diff"}}, "light")
	if text := b.Text(); strings.Contains(text, "kubectl get Secret") {
		t.Errorf("a command shows a Secret: %s", text)
	}
	checkOnlyRead(t, a)
}

// checkOnlyRead: whatever was shown, the API server was only read, and no Secret was.
func checkOnlyRead(t *testing.T, a *goldenapi.Server) {
	t.Helper()
	asked := a.Requests()
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
	b := OpenBrowser(t, startUI(t, goldenServer(t)))
	b.Open("#/fleet", "clusters")
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
	OpenBrowser(t, address).Open("#/fleet", "3 of 3 clusters")
	if text := OpenBrowser(t, address).Text(); !strings.Contains(text, "opens once") || strings.Contains(text, "orders") {
		t.Errorf("the second browser shows: %s", text)
	}
}

// What may not be read is named, and the rest is shown.
func TestMissingRights(t *testing.T) {
	a := goldenapi.Start(t, &goldenapi.Server{Lists: map[string][]any{"postgresclusters": {orders()}}})
	b := OpenBrowser(t, startUI(t, a))
	for _, page := range []Page{
		{"fleet", "#/fleet", []string{"could not be read", "mysqlclusters", "pg/orders"}},
		{"backups", "#/backups", []string{"could not be read", "backups", "orders-20260301-0200"}},
		{"cluster", ordersPage, []string{"could not be read", "pods", "persistentvolumeclaims", "events", "3 of 3 members serve"}},
	} {
		b.CheckPage(page, "light")
	}
	checkOnlyRead(t, a)
}

// Every page is reached and left without a mouse, and its title gets the focus.
func TestKeyboardAlone(t *testing.T) {
	b := OpenBrowser(t, startUI(t, goldenServer(t)))
	b.Open("#/fleet", "3 of 3 clusters")
	b.TabTo("Skip to the content")
	b.Run(chromedp.KeyEvent(kb.Enter))
	if at := b.Focused(); at != "Fleet" {
		t.Errorf("the link to the content leads to %q", at)
	}
	b.TabTo("search")
	b.Run(chromedp.KeyEvent("orders"))
	b.WaitUntil(`document.getElementById("count").innerText.startsWith("1 of 3")`)
	b.TabTo("pg/orders")
	b.Run(chromedp.KeyEvent(kb.Enter))
	b.WaitUntil(`document.activeElement.id === "title" && document.activeElement.innerText === "shop/orders"`)
	for _, title := range []string{"Drift", "Backups and drills", "Insights", "Recommendations", "Plan", "Fleet"} {
		b.Evaluate(`document.activeElement.blur(); document.querySelector(".skip").focus()`, nil)
		b.TabTo(title)
		b.Run(chromedp.KeyEvent(kb.Enter))
		b.WaitUntil(fmt.Sprintf(`document.activeElement.id === "title" && document.activeElement.innerText === %q`, title))
	}
	b.CheckProblems("the walk")
}

// Every control of every page is reached, seen and used without a mouse, in light and dark.
// In a narrow window, tables scroll.
func TestEveryControlByKeyboard(t *testing.T) {
	b := OpenBrowser(t, startUI(t, goldenServer(t), "-f", declarations(t)))
	for _, scheme := range Schemes {
		b.UseScheme(scheme)
		for _, page := range pages {
			controls := b.CheckKeyboard(page)
			if scheme == "light" {
				b.FollowLinks(page, controls)
			}
			if n := countKind(controls, chromium.Link); n < 7 {
				t.Errorf("%s has %d links: %v", page.Name, n, controls)
			}
			if page.Name == "fleet" && (countKind(controls, chromium.Text) != 1 || countKind(controls, chromium.Select) != 2) {
				t.Errorf("the fleet has %v", controls)
			}
		}
	}
	b.Run(chromedp.EmulateViewport(400, 700))
	for _, page := range pages {
		if controls := b.CheckKeyboard(page); countKind(controls, chromium.Scroller) == 0 {
			t.Errorf("in a narrow window nothing on %s scrolls: %v", page.Name, controls)
		}
	}
}

func countKind(controls []chromium.Control, kind string) (n int) {
	for _, c := range controls {
		if c.Kind == kind {
			n++
		}
	}
	return n
}

// The walk finds what it is there to find.
func TestKeyboardFaultsAreFound(t *testing.T) {
	b := OpenBrowser(t, startUI(t, goldenServer(t)))
	b.Open("#/plan", "kubectl holdfast ui -f")
	if _, faults := b.FindKeyboardFaults(); len(faults) > 0 {
		t.Fatal(faults)
	}
	b.Evaluate(`(() => {
		const add = (tag, text, change) => { const e = document.createElement(tag); e.append(text); change(e); document.querySelector("main").append(e); };
		add("div", "only by mouse", (e) => e.addEventListener("click", () => 0));
		add("button", "skipped", (e) => { e.tabIndex = -1; });
		add("button", "unseen", (e) => { e.style.outline = "none"; });
		add("button", "faint", (e) => { e.style.outline = "3px solid #f2f2f2"; });
		add("button", "deaf", (e) => ["keydown", "keypress"].forEach((type) => e.addEventListener(type, (event) => event.key === "Tab" || event.preventDefault())));
		add("button", "early", (e) => { e.tabIndex = 1; });
		add("input", "", (e) => { e.ariaLabel = "fixed"; e.readOnly = true; });
	})()`, nil)
	_, faults := b.FindKeyboardFaults()
	found := strings.Join(faults, "\n")
	for _, want := range []string{
		"<div></div> listens to click, and the keyboard does not reach it", `button "skipped" is not reached by the tabulator`,
		`button "unseen" does not show that it has the focus`, `button "faint" does not show that it has the focus`,
		`button "deaf" does not act on Enter`, `button "deaf" does not act on Space`,
		`button "early" is not reached by the tabulator`, `text "fixed" does not change by the keyboard`,
	} {
		if !strings.Contains(found, want) {
			t.Errorf("not found: %s", want)
		}
	}
	if t.Failed() || len(faults) != 8 {
		t.Errorf("%d faults are found:\n%s", len(faults), found)
	}
}

// largeFleet is of 1,000 clusters, of which every tenth is not Ready. The later ones are newer.
func largeFleet() (fleet []any) {
	for i := range 1000 {
		c := orders()
		c.Name, c.UID = fmt.Sprintf("orders-%04d", i), ""
		c.CreationTimestamp = before(time.Duration(2000-i) * time.Hour)
		if i%10 == 9 {
			c.Status.Phase = "Degraded"
		}
		fleet = append(fleet, c)
	}
	return fleet
}

func openLargeFleet(t testing.TB) *Browser {
	t.Helper()
	return OpenBrowser(t, startUI(t, goldenapi.Start(t, &goldenapi.Server{Lists: map[string][]any{"postgresclusters": largeFleet(), "mysqlclusters": {}, "etcdclusters": {}}})))
}

// A large fleet is filtered, ordered and paged through without a mouse. A button keeps the
// focus on the last page, too, where it has nothing more to do.
func TestLargeFleetByKeyboard(t *testing.T) {
	b := openLargeFleet(t)
	b.Open("#/fleet", "1000 of 1000 clusters")
	showsFirst := func(name string) {
		t.Helper()
		b.WaitUntil(fmt.Sprintf(`document.querySelector("tbody a").innerText === "pg/%s"`, name))
	}
	labelled := func(text string) string {
		return fmt.Sprintf(`document.activeElement.closest("label")?.innerText.startsWith(%q)`, text)
	}
	press := func(button, key, first, page string) {
		t.Helper()
		if b.Focused() != button {
			b.TabTo(button)
		}
		b.Run(chromedp.KeyEvent(key))
		showsFirst(first)
		if !b.Holds(fmt.Sprintf(`document.querySelector("main").innerText.includes(%q)`, page)) || b.Focused() != button {
			t.Errorf("after %q, %q has the focus, and the page shows: %.500s", button, b.Focused(), b.Text())
		}
	}
	showsFirst("orders-0000")
	press("Next page", kb.Enter, "orders-0050", "page 2 of 20")
	press("Next page", " ", "orders-0100", "page 3 of 20")

	b.Evaluate(`document.getElementById("title").focus()`, nil)
	b.TabUntil(labelled("Order"))
	b.Run(chromedp.KeyEvent(kb.ArrowDown)) // not ready first
	showsFirst("orders-0009")
	b.Run(chromedp.KeyEvent("newest"))
	showsFirst("orders-0999")

	b.Evaluate(`document.getElementById("title").focus()`, nil)
	b.TabUntil(labelled("Phase"))
	b.Run(chromedp.KeyEvent(kb.ArrowDown)) // Degraded
	b.WaitUntil(`document.getElementById("count").innerText.startsWith("100 of 1000")`)
	press("Next page", kb.Enter, "orders-0499", "page 2 of 2")
	press("Next page", kb.Enter, "orders-0499", "page 2 of 2")
	b.CheckAccessibility("the last page")
	_, faults := b.FindKeyboardFaults()
	for _, fault := range faults {
		t.Error(fault)
	}
	b.Evaluate(`document.getElementById("title").focus()`, nil)
	press("Previous page", " ", "orders-0999", "page 1 of 2")
	press("Previous page", " ", "orders-0999", "page 1 of 2")
	b.CheckProblems("the fleet")
}

// describeMachine is what a time was measured on, and when.
func describeMachine(t testing.TB) string {
	t.Helper()
	cpus, err := os.ReadFile("/proc/cpuinfo")
	load, errLoad := os.ReadFile("/proc/loadavg")
	if err := errors.Join(err, errLoad); err != nil {
		t.Fatal(err)
	}
	model := "an unknown processor"
	if found := regexp.MustCompile(`(?m)^model name\s*: (.*)$`).FindStringSubmatch(string(cpus)); found != nil {
		model = found[1]
	}
	return fmt.Sprintf("%d cores of %s, load %s, %s", runtime.NumCPU(), model, strings.Fields(string(load))[0], time.Now().Format(time.DateOnly))
}

// A fleet of 1,000 is shown page by page; how long that takes is printed.
func TestFleetOfThousand(t *testing.T) {
	b := openLargeFleet(t)
	var took []time.Duration
	for range 5 {
		b.Run(chromedp.Navigate("about:blank"))
		begun := time.Now()
		b.Open("#/fleet", "1000 of 1000 clusters")
		took = append(took, time.Since(begun).Round(time.Millisecond))
	}
	slices.Sort(took)
	var answer float64
	b.Evaluate(`(async () => { const t = performance.now(); await (await fetch("/api/fleet")).json(); return performance.now() - t; })()`, &answer)
	t.Logf("a fleet of 1,000: shown in %v (5 times), of which the answer takes %.0f ms; %s", took, answer, describeMachine(t))
	var rows int
	b.Evaluate(`document.querySelectorAll("tbody tr").length`, &rows)
	if rows != 50 {
		t.Errorf("%d rows", rows)
	}
}
