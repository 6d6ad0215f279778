package loginsight

import (
	"fmt"
	"slices"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// Severity says how much a class matters to the person who runs the cluster.
type Severity string

// The severities, the worst first.
const (
	Critical Severity = "Critical" // data or the service is at risk: act now
	Error    Severity = "Error"    // requests fail
	Warning  Severity = "Warning"  // requests are slow, or fail now and then
	Notice   Severity = agentapi.InsightNotice
)

var severities = []Severity{Critical, Error, Warning, Notice}

// Rank orders severities: the worst is 0. Unknown ones come last.
func (s Severity) Rank() int {
	if i := slices.Index(severities, s); i >= 0 {
		return i
	}
	return len(severities)
}

// Unit of the number that is captured with an event.
type Unit string

// The units; empty where a class has no number.
const (
	Milliseconds Unit = "ms"
	Seconds      Unit = "s"
	Bytes        Unit = "bytes"
	Transactions Unit = "transactions"
	Days         Unit = "days"
	Signal       Unit = "signal"
	ExitCode     Unit = "exit code"
)

// Class is one kind of event that a text log reports.
type Class struct {
	// Name is unique among the classes of all engines.
	Name     string
	Severity Severity
	// Unit of the captured number; empty for none.
	Unit Unit
	// Meaning says what happened, and Remedy what to do.
	Meaning, Remedy string
}

// Engine of the database.
type Engine string

// The engines.
const (
	PostgreSQL Engine = "PostgreSQL"
	MySQL      Engine = "MySQL"
	Etcd       Engine = "etcd"
	// AnyEngine is what the agent measures of a member of every kind.
	AnyEngine Engine = "every kind"
)

// ListClasses are the classes of an engine, in the order of the reference page.
func ListClasses(e Engine) []*Class {
	switch e {
	case PostgreSQL:
		return postgresClasses
	case MySQL:
		return mysqlClasses
	case Etcd:
		return etcdClasses
	case AnyEngine:
		return memberClasses
	}
	return nil
}

var byName = func() map[string]*Class {
	all := map[string]*Class{}
	for _, c := range slices.Concat(postgresClasses, etcdClasses, mysqlClasses, memberClasses) {
		if all[c.Name] != nil && *all[c.Name] != *c {
			panic(fmt.Sprintf("two classes are called %s", c.Name))
		}
		all[c.Name] = c
	}
	return all
}()

// FindClass finds a class by its name; nil of a name that is not in the whitelist.
func FindClass(name string) *Class { return byName[name] }

// mustFind finds a class that a rule names.
func mustFind(classes []*Class, name string) *Class {
	for _, c := range classes {
		if c.Name == name {
			return c
		}
	}
	panic("no class is called " + name)
}
