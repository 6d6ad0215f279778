// Package audit counts, from the API server's audit log, which client asked
// for what how often: what an operator costs the API server at rest, and
// whether it watches or polls.
package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Query selects requests and says how finely they are distinguished.
type Query struct {
	From    time.Time      // received at or after; zero for all there is
	User    *regexp.Regexp // on "user userAgent"; nil for everyone
	Objects bool           // a row per object rather than per resource
}

// Kind is a kind of request of one client.
type Kind struct {
	User      string `json:"user"`
	UserAgent string `json:"userAgent"`
	Verb      string `json:"verb"`
	Resource  string `json:"resource"` // leases.coordination.k8s.io, pods/exec
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// DryRun says that the request was to change nothing.
	DryRun bool `json:"dryRun,omitempty"`
}

// Row says how often a kind of request was made.
type Row struct {
	Kind
	Count int         `json:"count"`
	Codes map[int]int `json:"codes"` // how often by the answer's HTTP code
	First time.Time   `json:"first"`
	Last  time.Time   `json:"last"`
}

// event is what is read of an audit.k8s.io/v1 Event.
type event struct {
	Stage      string    `json:"stage"`
	Verb       string    `json:"verb"`
	RequestURI string    `json:"requestURI"`
	UserAgent  string    `json:"userAgent"`
	Received   time.Time `json:"requestReceivedTimestamp"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	Object *struct {
		Resource, Subresource, Namespace, Name, APIGroup string
	} `json:"objectRef"`
	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// ListFiles are the log and its rotated parts, the oldest first, that may hold
// requests from that time on.
func ListFiles(log string, from time.Time) ([]string, error) {
	extension := filepath.Ext(log)
	rotated, err := filepath.Glob(strings.TrimSuffix(log, extension) + "-*" + extension)
	if err != nil {
		return nil, err
	}
	slices.Sort(rotated) // their names hold the time of rotation
	var files []string
	for _, file := range append(rotated, log) {
		info, err := os.Stat(file)
		if os.IsNotExist(err) {
			continue
		} else if err != nil {
			return nil, err
		}
		if !info.ModTime().Before(from) {
			files = append(files, file)
		}
	}
	return files, nil
}

// CountRequests reads logs, one event a line, and returns the rows, the most frequent
// first. An unfinished last line, which the API server is about to end, does
// not count.
func CountRequests(logs io.Reader, q Query) ([]Row, error) {
	rows := map[Kind]*Row{}
	reader := bufio.NewReaderSize(logs, 1<<20)
	for {
		line, err := reader.ReadBytes('\n')
		if err == io.EOF {
			return sortRows(rows), nil
		} else if err != nil {
			return nil, err
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			if bytes.HasPrefix(line, []byte("{")) {
				continue // cut short when the API server was killed
			}
			return nil, fmt.Errorf("read audit event: %w", err)
		}
		if !isCounted(e) || e.Received.Before(q.From) {
			continue
		}
		if q.User != nil && !q.User.MatchString(e.User.Username+" "+e.UserAgent) {
			continue
		}
		addEvent(rows, e, q.Objects)
	}
}

// isCounted says whether the event stands for its request. A watch is logged
// when it starts and when it ends, which may be outside the time asked about;
// one that was refused never started.
func isCounted(e event) bool {
	switch e.Stage {
	case "ResponseStarted":
		return e.Verb == "watch"
	case "ResponseComplete":
		return e.Verb != "watch" || e.Response.Code >= 400
	case "Panic":
		return true
	}
	return false
}

func addEvent(rows map[Kind]*Row, e event, objects bool) {
	kind := kindOf(e, objects)
	row, found := rows[kind]
	if !found {
		row = &Row{Kind: kind, First: e.Received, Codes: map[int]int{}}
		rows[kind] = row
	}
	row.Count++
	row.Codes[e.Response.Code]++
	if e.Received.Before(row.First) {
		row.First = e.Received
	}
	if e.Received.After(row.Last) {
		row.Last = e.Received
	}
}

func kindOf(e event, objects bool) Kind {
	path, query, _ := strings.Cut(e.RequestURI, "?")
	kind := Kind{User: e.User.Username, UserAgent: e.UserAgent, Verb: e.Verb, DryRun: slices.Contains(strings.Split(query, "&"), "dryRun=All")}
	if e.Object == nil {
		kind.Resource = path
		return kind
	}
	kind.Resource = e.Object.Resource
	if e.Object.APIGroup != "" {
		kind.Resource += "." + e.Object.APIGroup
	}
	if e.Object.Subresource != "" {
		kind.Resource += "/" + e.Object.Subresource
	}
	if objects {
		kind.Namespace, kind.Name = e.Object.Namespace, e.Object.Name
	}
	return kind
}

func sortRows(rows map[Kind]*Row) []Row {
	list := make([]Row, 0, len(rows))
	for _, row := range rows {
		list = append(list, *row)
	}
	slices.SortFunc(list, func(a, b Row) int {
		return cmp.Or(
			cmp.Compare(b.Count, a.Count),
			cmp.Compare(a.User, b.User), cmp.Compare(a.UserAgent, b.UserAgent),
			cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Verb, b.Verb),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// CountFailed is how many requests were answered with a code of 400 or more.
func (r Row) CountFailed() int {
	failed := 0
	for code, count := range r.Codes {
		if code >= 400 {
			failed += count
		}
	}
	return failed
}
