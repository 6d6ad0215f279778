// Package planci runs the jobs of examples/plan as CI does, with programs and comments of
// the test's own. Whether the platforms behave like these, only they can say.
package planci

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"
)

const examples = "../../examples/plan"

// comment of a pull request, in the words of both platforms.
type comment struct {
	ID   int    `json:"id"`
	Body string `json:"body"`
	User struct {
		Type string `json:"type"`
	} `json:"user"`
	Author struct {
		ID int `json:"id"`
	} `json:"author"`
}

// ours and theirs are the accounts of the job and of a person.
const ours, theirs = 7, 8

// platform keeps the comments of one pull request.
type platform struct {
	*httptest.Server
	name string
	// list and one are the paths of all comments and of one, and change the method that
	// updates one.
	list, one, change string
	// broken has each request fail, and unnamed those that ask whose token it is.
	broken, unnamed bool

	mu       sync.Mutex
	comments []comment
}

func newPlatform(t *testing.T, name string) *platform {
	t.Helper()
	p := &platform{name: name}
	switch name {
	case "github":
		p.list, p.one, p.change = "/repos/acme/shop/issues/12/comments", "/repos/acme/shop/issues/comments/", http.MethodPatch
	case "gitlab":
		p.list, p.one, p.change = "/projects/3/merge_requests/12/notes", "/projects/3/merge_requests/12/notes/", http.MethodPut
	}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

// environment is what a job of the platform has.
func (p *platform) environment() []string {
	if p.name == "github" {
		return []string{"GITHUB_API_URL=" + p.URL, "GITHUB_REPOSITORY=acme/shop", "PULL_REQUEST=12", "GITHUB_TOKEN=hunter2"}
	}
	return []string{"CI_API_V4_URL=" + p.URL, "CI_PROJECT_ID=3", "CI_MERGE_REQUEST_IID=12", "PLAN_TOKEN=hunter2"}
}

func (p *platform) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	mayAsk := r.Header.Get("Authorization") == "Bearer hunter2" || r.Header.Get("Private-Token") == "hunter2"
	id, isOne := strings.CutPrefix(r.URL.Path, p.one)
	switch {
	case p.broken || !mayAsk || p.unnamed && r.URL.Path == "/user":
		http.Error(w, `{"message": "no"}`, http.StatusForbidden)
	case r.Method == http.MethodGet && r.URL.Path == "/user" && p.name == "gitlab":
		fmt.Fprintf(w, `{"id": %d}`, ours)
	case r.Method == http.MethodGet && r.URL.Path == p.list:
		p.writePage(w, r)
	case r.Method == http.MethodPost && r.URL.Path == p.list:
		p.add(ours, p.readBody(w, r))
		w.WriteHeader(http.StatusCreated)
	case r.Method == p.change && isOne:
		p.update(w, id, p.readBody(w, r))
	default:
		http.NotFound(w, r)
	}
}

func (p *platform) writePage(w http.ResponseWriter, r *http.Request) {
	size, errSize := strconv.Atoi(r.URL.Query().Get("per_page"))
	page, errPage := strconv.Atoi(r.URL.Query().Get("page"))
	if errSize != nil || errPage != nil || size > 100 {
		http.Error(w, "no page", http.StatusBadRequest)
		return
	}
	first := min(len(p.comments), (page-1)*size)
	_ = json.NewEncoder(w).Encode(append([]comment{}, p.comments[first:min(len(p.comments), first+size)]...))
}

func (p *platform) readBody(w http.ResponseWriter, r *http.Request) string {
	var sent struct {
		Body string `json:"body"`
	}
	if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return sent.Body
}

func (p *platform) add(account int, body string) {
	c := comment{ID: 1000 + len(p.comments), Body: body}
	c.User.Type, c.Author.ID = "User", account
	if account == ours {
		c.User.Type = "Bot"
	}
	p.comments = append(p.comments, c)
}

func (p *platform) update(w http.ResponseWriter, id, body string) {
	i := slices.IndexFunc(p.comments, func(c comment) bool { return strconv.Itoa(c.ID) == id })
	if i < 0 {
		http.Error(w, "no such comment", http.StatusNotFound)
		return
	}
	p.comments[i].Body = body
}

// bodies are all comments, in order.
func (p *platform) bodies() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, c := range p.comments {
		all = append(all, c.Body)
	}
	return all
}

// checkout is a directory as a job has it, with programs that stand for kustomize and
// kubectl: the plan prints a text and ends with a code.
type checkout struct {
	t   *testing.T
	dir string
	env []string
}

func newCheckout(t *testing.T) *checkout {
	t.Helper()
	for _, program := range []string{"curl", "jq", "git", "tar"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("%s is not installed, which the examples need", program)
			}
			t.Skipf("%s is not installed, which the examples need", program)
		}
	}
	c := &checkout{t: t, dir: t.TempDir()}
	for _, script := range []string{"plan.sh", "comment.sh", "revisions.sh"} {
		text, err := os.ReadFile(filepath.Join(examples, script))
		if err != nil {
			t.Fatal(err)
		}
		c.write(script, string(text))
	}
	c.write("bin/kustomize", "#!/bin/sh\n[ \"$1 $2\" = 'build shop/production' ] || exit 9\necho 'kind: PostgresCluster'\n")
	c.write("bin/kubectl", "#!/bin/sh\ngrep -q PostgresCluster built.yaml || exit 9\necho \"$@\" >arguments\ncat text\nexit $(cat code)\n")
	c.env = append(os.Environ(), "PATH="+filepath.Join(c.dir, "bin")+":"+os.Getenv("PATH"), "RUNNER_TEMP="+t.TempDir())
	return c
}

func (c *checkout) write(name, text string) {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil { //nolint:gosec // a program
		c.t.Fatal(err)
	}
}

// planIs has the plan print a text and end with a code.
func (c *checkout) planIs(code int, text string) {
	c.t.Helper()
	c.write("text", text)
	c.write("code", strconv.Itoa(code))
}

// run runs a script as the platforms do, and returns its exit code and what it prints.
func (c *checkout) run(script string, env ...string) (int, string) {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), "sh", "-ec", script)
	cmd.Dir, cmd.Env = c.dir, append(slices.Clone(c.env), env...)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		c.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

const marker = "<!-- holdfast-plan: shop/production -->"

// One comment is made, and then updated, whatever others there are.
func TestOneCommentIsUpdated(t *testing.T) {
	for _, name := range []string{"github", "gitlab"} {
		t.Run(name, func(t *testing.T) {
			p, c := newPlatform(t, name), newCheckout(t)
			for i := range 130 {
				p.add(theirs, fmt.Sprint("comment ", i))
			}
			p.add(theirs, marker+"\nof a person")
			p.add(ours, "<!-- holdfast-plan: shop/staging -->\nanother plan")
			others := p.bodies()
			comment := func(text string) {
				t.Helper()
				c.write("plan.md", text)
				if code, out := c.run("./comment.sh "+name+" plan.md", p.environment()...); code != 0 {
					t.Fatalf("exit code %d: %s", code, out)
				}
				want := append(slices.Clone(others), text)
				if got := p.bodies(); !slices.Equal(got, want) {
					t.Fatalf("the comments are %q, want %q", got[len(others)-2:], want[len(others)-2:])
				}
			}
			comment(marker + "\nfirst \"plan\" → `$HOME` \\ 'x'\n")
			comment(marker + "\nsecond plan\n")
			comment(marker + "\nthird plan\n")
		})
	}
}

// What the platform refuses fails the job, and shows no token.
func TestRefusedCommentFails(t *testing.T) {
	for _, name := range []string{"github", "gitlab"} {
		t.Run(name, func(t *testing.T) {
			p, c := newPlatform(t, name), newCheckout(t)
			p.broken = true
			c.write("plan.md", marker+"\n")
			code, out := c.run("./comment.sh "+name+" plan.md", p.environment()...)
			if code == 0 || strings.Contains(out, "hunter2") || len(p.bodies()) > 0 {
				t.Errorf("exit code %d: %s", code, out)
			}
			if !strings.Contains(out, name+` answers 403:`) || !strings.Contains(out, `{"message": "no"}`) {
				t.Errorf("it does not say what the platform answers: %s", out)
			}
		})
	}
	c := newCheckout(t)
	c.write("plan.md", marker+"\n")
	if code, out := c.run("./comment.sh gitea plan.md"); code != 2 || !strings.Contains(out, "github or gitlab") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// Where GitLab does not say whose token it is, no comment is made beside the one there is.
func TestUnknownAccountFails(t *testing.T) {
	p, c := newPlatform(t, "gitlab"), newCheckout(t)
	p.unnamed = true
	p.add(ours, marker+"\nfirst plan")
	c.write("plan.md", marker+"\nsecond plan")
	if code, out := c.run("./comment.sh gitlab plan.md", p.environment()...); code == 0 || len(p.bodies()) != 1 {
		t.Errorf("exit code %d, and %d comments: %s", code, len(p.bodies()), out)
	}
}

// A plan that is too long is cut.
func TestLongPlans(t *testing.T) {
	p, c := newPlatform(t, "github"), newCheckout(t)
	c.write("plan.md", marker+"\n"+strings.Repeat("→ a line\n", 10000))
	if code, out := c.run("./comment.sh github plan.md", p.environment()...); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	if got := p.bodies()[0]; len(got) > 65000 || !strings.HasSuffix(got, "artifacts of the job.\n") {
		t.Errorf("%d bytes, and the last are %q", len(got), got[len(got)-60:])
	}
}

// A plan that failed has no comment, and changes none.
func TestFailedPlans(t *testing.T) {
	for _, name := range []string{"github", "gitlab"} {
		p, c := newPlatform(t, name), newCheckout(t)
		p.add(ours, "another comment of the job")
		c.planIs(2, "")
		if c.runJob(p) {
			t.Errorf("%s: the job succeeds", name)
		}
		if got := p.bodies(); len(got) != 1 || got[0] != "another comment of the job" {
			t.Errorf("%s: the comments are %q", name, got)
		}
	}
}

// workflow is what is read of the example for GitHub.
type workflow struct {
	Jobs map[string]struct {
		Steps []struct {
			Name string            `json:"name"`
			If   string            `json:"if"`
			Run  string            `json:"run"`
			Env  map[string]string `json:"env"`
		} `json:"steps"`
	} `json:"jobs"`
}

// pipeline is what is read of the example for GitLab.
type pipeline struct {
	Plan struct {
		Variables   map[string]string `json:"variables"`
		Script      []string          `json:"script"`
		AfterScript []string          `json:"after_script"`
	} `json:"database-plan"`
}

func readExample(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(examples, name))
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// runJob runs the steps of a platform's example in order, and answers whether the job
// succeeds. Steps behind one that fails run where they say so.
func (c *checkout) runJob(p *platform) bool {
	c.t.Helper()
	if p.name == "gitlab" {
		var jobs pipeline
		readExample(c.t, "gitlab-ci.yaml", &jobs)
		code, _ := c.run(strings.Join(jobs.Plan.Script, "\n"), p.environment()...)
		if after, out := c.run(strings.Join(jobs.Plan.AfterScript, "\n"), p.environment()...); after != 0 {
			c.t.Errorf("the comment fails: %s", out)
		}
		return code == 0
	}
	var jobs workflow
	readExample(c.t, "github-actions.yaml", &jobs)
	values := strings.NewReplacer("${{ github.token }}", "hunter2", "${{ github.event.pull_request.number }}", "12", "${{ secrets.PLAN_KUBECONFIG }}", "kind: Config")
	succeeds, runs := true, 0
	for _, step := range jobs.Jobs["plan"].Steps {
		if step.Run == "" || !succeeds && !strings.Contains(step.If, "always()") {
			continue
		}
		env := []string{"GITHUB_API_URL=" + p.URL, "GITHUB_REPOSITORY=acme/shop"}
		for _, name := range slices.Sorted(maps.Keys(step.Env)) {
			env = append(env, name+"="+values.Replace(step.Env[name]))
		}
		code, out := c.run(step.Run, env...)
		if code != 0 && step.Name != "plan" {
			c.t.Errorf("step %s: %s", step.Name, out)
		}
		succeeds, runs = succeeds && code == 0, runs+1
	}
	if runs != 2 {
		c.t.Errorf("%d steps ran", runs)
	}
	return succeeds
}

// Each job comments whatever the plan says, and fails if the commit must not be merged.
func TestJobs(t *testing.T) {
	for _, name := range []string{"github", "gitlab"} {
		for code, mayMerge := range []bool{true, true, false, false, false} {
			t.Run(fmt.Sprintf("%s/%d", name, code), func(t *testing.T) {
				p, c := newPlatform(t, name), newCheckout(t)
				text := fmt.Sprintf("%s\n### Database plan: %d\n", marker, code)
				c.planIs(code, text)
				for range 2 {
					if got := c.runJob(p); got != mayMerge {
						t.Errorf("the job succeeds: %v", got)
					}
				}
				if got := p.bodies(); len(got) != 1 || got[0] != text {
					t.Errorf("the comments are %q", got)
				}
				arguments, err := os.ReadFile(filepath.Join(c.dir, "arguments"))
				if want := "holdfast plan -f built.yaml -o markdown --marker shop/production --kustomization flux-system/apps\n"; err != nil || string(arguments) != want {
					t.Errorf("the plan is run with %q, %v", arguments, err)
				}
			})
		}
	}
}

// GitHub's example is a workflow: its keys, expressions and actions are those of GitHub.
func TestWorkflowIsValid(t *testing.T) {
	modules, err := filepath.Abs("../tools/actionlint/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(examples, "github-actions.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	check := func(text string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "go", "tool", "-modfile="+modules, "actionlint", "-no-color", "-")
		cmd.Stdin = strings.NewReader(text)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := check(string(text)); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := check(strings.Replace(string(text), "github.token", "github.tokken", 1)); err == nil || !strings.Contains(out, "tokken") {
		t.Errorf("a fault is not found: %v\n%s", err, out)
	}
}

// Two revisions of a repository are planned offline, whatever the working tree is like. An
// overlay that one of them lacks declares nothing there.
func TestRevisions(t *testing.T) {
	c := newCheckout(t)
	c.write("bin/kustomize", "#!/bin/sh\n[ \"$1\" = build ] || exit 9\ncat \"$2/orders.yaml\"\n")
	c.write("bin/kubectl", "#!/bin/sh\n[ \"$1 $2 $3 $5\" = 'holdfast plan --from --to' ] || exit 9\n"+
		"echo \"from: $(cat \"$4\"/*.yaml)\"\necho \"to: $(cat \"$6\"/*.yaml)\"\nshift 6\necho \"flags: $*\"\nexit 3\n")
	c.git("init", "--quiet", "--initial-branch=main")
	c.git("commit", "--quiet", "--allow-empty", "--message=empty")
	for _, size := range []string{"1Gi", "2Gi"} {
		c.write("shop/production/orders.yaml", "size: "+size+"\n")
		c.git("add", "shop")
		c.git("commit", "--quiet", "--message="+size)
	}
	c.write("shop/production/orders.yaml", "size: 9Gi\n")
	for revisions, want := range map[string]string{
		"HEAD~1 main": "from: size: 1Gi\nto: size: 2Gi\nflags: -o markdown\n",
		"HEAD~2 HEAD": "from: \nto: size: 2Gi\nflags: -o markdown\n",
		"main HEAD~2": "from: size: 2Gi\nto: \nflags: -o markdown\n",
	} {
		if code, out := c.run("cd shop && ../revisions.sh " + revisions + " shop/production -o markdown"); code != 3 || out != want {
			t.Errorf("%s: exit code %d, %q, want %q", revisions, code, out, want)
		}
	}
	if code, out := c.run("./revisions.sh no-such HEAD shop/production"); code == 0 || strings.Contains(out, "from:") {
		t.Errorf("a revision that there is not: exit code %d: %s", code, out)
	}
}
