//go:build e2e && soak

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// edit is a commit.
type edit struct {
	name string
	// spec are lines that come in the place of those of the same names; null takes one
	// away. Switchover is an ID of a request for another primary.
	spec       string
	switchover string
	// refused is the reason that the plan gives, and stalled that of the cluster; Refused
	// is the API server's, which takes no such commit.
	refused, stalled string
	// nothing says that the plan is to be "no change".
	nothing bool
	// claims is how many volumes a quota of the namespace allows while the edit is tried;
	// 0 for no quota.
	claims int32
	// other is the kind of another cluster of the same name that is declared beside it;
	// empty for none.
	other string
}

// refusedByServer is the reason of a plan whose dry run the API server refuses.
const refusedByServer = "Refused"

// plannedCluster is a kind whose edits are planned, and how it begins.
type plannedCluster struct {
	kind *kind
	// declares is the kind of what is declared: the cluster's own, or Database.
	declares string
	// spec are the lines of the spec at first, beside the number of members.
	spec    []string
	members int32
	edits   []edit
	// writes says that a client writes all the time, and that the pauses of its writes are
	// what the edits are for.
	writes bool
}

// commonEdits are what every kind takes, in an order in which each may follow the one
// before. Members are as many as at first, and storage says how a size is declared.
func commonEdits(members int32, storage, image, otherKind string) []edit {
	size := func(of string) string { return fmt.Sprintf(storage, of) }
	return []edit{
		{name: "nothing", nothing: true},
		{name: "labels of pods", spec: `podLabels: {team: shop}`},
		{name: "requests", spec: `resources: {requests: {cpu: 20m}}`},
		{name: "larger volumes", spec: size("1280Mi")},
		{name: "smaller volumes", spec: size("1Gi"), refused: v1alpha1.ReasonStorageShrink, stalled: v1alpha1.ReasonStorageShrink},
		{name: "a field that there is not", spec: `replikas: 3`, refused: refusedByServer},
		{name: "more members than may be", spec: `replicas: 11`, refused: refusedByServer},
		{name: "an image that cannot be one", spec: `image: Postgres 17`, refused: refusedByServer},
		{name: "the same image by its name", spec: `image: ` + image},
		{name: "the image of the version", spec: `image: null`},
		{name: "backups", spec: `backup: {enabled: true, schedule: "0 3 1 1 *"}`},
		{name: "no backups", spec: unsaved},
		{name: "an impossible date", spec: `backup: {schedule: "0 0 31 2 *"}`, refused: v1alpha1.ReasonInvalidSchedule, stalled: v1alpha1.ReasonInvalidSchedule},
		{name: "drift", spec: `drift: {mode: Report}`},
		{name: "suspend", spec: `suspend: true`},
		{name: "labels while it is suspended", spec: `podLabels: {team: none}`},
		{name: "resume with the labels from before", spec: `suspend: false, podLabels: {team: shop}`},
		{name: "beyond a quota", spec: fmt.Sprintf(`replicas: %d`, members+2), refused: "QuotaExceeded", stalled: v1alpha1.ReasonForbidden, claims: members},
		{name: "another deletion policy", spec: `deletionPolicy: Delete`},
		{name: "the deletion policy from before", spec: `deletionPolicy: Retain`},
		{name: "another kind of the name", other: otherKind, refused: v1alpha1.ReasonNameConflict},
	}
}

// clusterStorage is how a size is declared in a cluster.
const clusterStorage = `storage: {size: %s}`

func plannedPostgres(t *testing.T) plannedCluster {
	_, older, newer := needMinors(t)
	edits := commonEdits(2, clusterStorage, imageRef(t, "postgres", older), "EtcdCluster")
	return plannedCluster{kind: postgres, declares: postgres.name, members: 2, spec: []string{fmt.Sprintf("version: %q, storage: {size: 1Gi}", older), unsaved}, edits: append(
		edits,
		edit{name: "a setting that is reloaded", spec: `parameters: {work_mem: 5MB}`},
		edit{name: "one for new sessions", spec: `parameters: {work_mem: 5MB, log_connections: "on"}`},
		edit{name: "one that takes a restart", spec: `parameters: {max_connections: "120"}`},
		edit{name: "one that the primary takes first", spec: `parameters: {max_connections: "90"}`},
		edit{name: "a value that is none", spec: `parameters: {work_mem: plenty}`, refused: v1alpha1.ReasonInvalidParameter, stalled: v1alpha1.ReasonInvalidParameter},
		edit{name: "another primary", switchover: "plan-1"},
		edit{name: "a third member", spec: `replicas: 3`},
		edit{name: "a major version", spec: `version: "18"`, refused: v1alpha1.ReasonMajorUpgrade, stalled: v1alpha1.ReasonMajorUpgrade},
		edit{name: "a minor version", spec: fmt.Sprintf("version: %q", newer)},
		edit{name: "one member", spec: `replicas: 1`},
		edit{name: "a restart of one member", spec: `podLabels: {team: alone}`},
	)}
}

func plannedEtcd(t *testing.T) plannedCluster {
	older, newer := newestEtcd("3.6"), newestEtcd("3.7")
	if older == "" {
		skipTest(t, "needs etcd 3.6 and 3.7 (test/cluster images etcd)")
	}
	edits := commonEdits(3, clusterStorage, imageRef(t, "etcd", older), postgres.name)
	return plannedCluster{kind: etcd, declares: etcd.name, members: 3, spec: []string{fmt.Sprintf("version: %q, storage: {size: 1Gi}", older), unsaved}, edits: append(
		edits,
		edit{name: "a setting", spec: `parameters: {max-wals: "7"}`},
		edit{name: "a quota of data", spec: `quota: 256Mi`},
		edit{name: "a quota beyond the volume", spec: `quota: 8Gi`, refused: refusedByServer},
		edit{name: "an even number of members", spec: `replicas: 4`, refused: refusedByServer},
		edit{name: "five members", spec: `replicas: 5`},
		edit{name: "three members", spec: `replicas: 3`},
		edit{name: "backups again", spec: `backup: {enabled: true, schedule: "0 3 1 1 *"}`},
		edit{name: "a minor version", spec: fmt.Sprintf("version: %q", newer)},
		edit{name: "an older version", spec: fmt.Sprintf("version: %q", older), refused: v1alpha1.ReasonDowngradeRefused, stalled: v1alpha1.ReasonDowngradeRefused},
	)}
}

func plannedMySQL(t *testing.T) plannedCluster {
	have := needImages(t, mysql.engine, mysql.line, 1)
	version := have[len(have)-1]
	edits := commonEdits(3, clusterStorage, imageRef(t, mysql.engine, version), "EtcdCluster")
	// Each restart of three servers takes minutes.
	edits = slices.DeleteFunc(edits, func(e edit) bool { return e.name == "labels of pods" })
	return plannedCluster{kind: mysql, declares: mysql.name, members: 3, spec: []string{fmt.Sprintf("version: %q, storage: {size: 1Gi}, podLabels: {team: shop}", version), unsaved}, edits: append(
		edits,
		edit{name: "a setting that is taken while it runs", spec: `parameters: {max_connections: "123"}`},
		edit{name: "one for new sessions", spec: `parameters: {max_connections: "123", long_query_time: "3"}`},
		edit{name: "one that takes a restart", spec: `parameters: {innodb_purge_threads: "2"}`},
		edit{name: "one that is Holdfast's", spec: `parameters: {port: "3307"}`, refused: refusedByServer},
		edit{name: "another primary", switchover: "plan-1"},
		edit{name: "an older series", spec: `version: "8.4"`, refused: v1alpha1.ReasonDowngradeRefused, stalled: v1alpha1.ReasonDowngradeRefused},
		edit{name: "one member", spec: `replicas: 1`},
	)}
}

func plannedDatabase(t *testing.T) plannedCluster {
	have := needImages(t, postgres.engine, postgres.line, 1)
	version := have[len(have)-1]
	edits := commonEdits(2, `storage: %s`, imageRef(t, postgres.engine, version), "EtcdCluster")
	return plannedCluster{kind: postgres, declares: "Database", members: 2, spec: []string{fmt.Sprintf("engine: postgres, version: %q, storage: 1Gi", version), unsaved}, edits: append(
		edits,
		edit{name: "a setting that is reloaded", spec: `parameters: {work_mem: 5MB}`},
		edit{name: "one that takes a restart", spec: `parameters: {max_connections: "120"}`},
		edit{name: "another engine", spec: `engine: oracle`, refused: refusedByServer},
		edit{name: "one member", spec: `replicas: 1`},
	)}
}

// testName of an edit.
func (e edit) testName() string { return strings.ReplaceAll(e.name, " ", "_") }
