//go:build apiserver

package controller_test

import (
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// input is the value of one field, and what a refusal of it says; nothing where
// it is taken.
type input struct {
	path    string
	value   any
	refused string
}

// inputOfEveryKind is judged alike in every kind.
var inputOfEveryKind = map[string]input{
	"no storage":                         {"spec.storage", nil, "spec.storage"},
	"no size":                            {"spec.storage", map[string]any{}, "spec.storage.size"},
	"a tiny size":                        {"spec.storage.size", "1Mi", "storage.size must be at least 64Mi"},
	"a size that is none":                {"spec.storage.size", "lots", "spec.storage.size"},
	"a size that is a number":            {"spec.storage.size", int64(1 << 30), ""},
	"growth by itself":                   {"spec.storage.autoGrow", map[string]any{"maxSize": "10Gi"}, ""},
	"growth to the size that it has":     {"spec.storage.autoGrow", map[string]any{"maxSize": int64(1 << 30)}, ""},
	"growth without an end":              {"spec.storage.autoGrow", map[string]any{}, "spec.storage.autoGrow.maxSize"},
	"growth to less than the size":       {"spec.storage.autoGrow", map[string]any{"maxSize": "1023Mi"}, "storage.autoGrow.maxSize must be at least spec.storage.size"},
	"growth to a size that is none":      {"spec.storage.autoGrow", map[string]any{"maxSize": "lots"}, "spec.storage.autoGrow.maxSize"},
	"growth of a volume that is empty":   {"spec.storage.autoGrow", map[string]any{"maxSize": "10Gi", "thresholdPercent": int64(49)}, "spec.storage.autoGrow.thresholdPercent"},
	"growth of a volume that is full":    {"spec.storage.autoGrow", map[string]any{"maxSize": "10Gi", "thresholdPercent": int64(96)}, "spec.storage.autoGrow.thresholdPercent"},
	"growth in steps of nothing":         {"spec.storage.autoGrow", map[string]any{"maxSize": "10Gi", "stepPercent": int64(0)}, "spec.storage.autoGrow.stepPercent"},
	"growth in steps that are too large": {"spec.storage.autoGrow", map[string]any{"maxSize": "10Gi", "stepPercent": int64(101)}, "spec.storage.autoGrow.stepPercent"},
	"growth to the limits":               {"spec.storage.autoGrow", map[string]any{"maxSize": "10Gi", "thresholdPercent": int64(95), "stepPercent": int64(5)}, ""},
	"no member":                          {"spec.replicas", int64(0), "spec.replicas"},
	"nine members":                       {"spec.replicas", int64(9), ""},
	"ten members":                        {"spec.replicas", int64(10), "spec.replicas"},
	"members that are a word":            {"spec.replicas", "three", "spec.replicas"},
	"an empty image":                     {"spec.image", "", "spec.image"},
	"an image that is no reference":      {"spec.image", "Postgres 17", "spec.image: Invalid value"},
	"an image with two tags":             {"spec.image", "postgres:17:18", "can never be pulled"},
	"an image by tag":                    {"spec.image", "registry.example:5000/team/postgres:17.6", ""},
	"an image by tag and digest":         {"spec.image", "postgres:17@sha256:" + strings.Repeat("0f", 32), ""},
	"an unknown field":                   {"spec.sotrage", "1Gi", "spec.sotrage"},
	"an unknown policy":                  {"spec.deletionPolicy", "Destroy", "spec.deletionPolicy"},
	"policy Delete":                      {"spec.deletionPolicy", "Delete", ""},
	"an unknown drift mode":              {"spec.drift.mode", "Ignore", "spec.drift.mode"},
	"an ignore rule without content":     {"spec.drift.ignore", []any{map[string]any{"kind": "Service"}}, "an ignore rule needs paths or managers"},
	"an ignore path without a slash":     {"spec.drift.ignore", []any{map[string]any{"paths": []any{"spec.type"}}}, "spec.drift.ignore[0].paths[0]"},
	"an ignore rule":                     {"spec.drift.ignore", []any{map[string]any{"kind": "Service", "paths": []any{"/spec/type"}}}, ""},
	"a deadline of a second":             {"spec.progressDeadlineSeconds", int64(1), "spec.progressDeadlineSeconds"},
	"a pod label of ours":                {"spec.podLabels", map[string]any{"holdfast.dev/role": "primary"}, "spec.podLabels"},
	"a pod label of the common kind":     {"spec.podLabels", map[string]any{"app.kubernetes.io/name": "x"}, "spec.podLabels"},
	"a pod label":                        {"spec.podLabels", map[string]any{"team": "shop"}, ""},
	"a pod annotation of ours":           {"spec.podAnnotations", map[string]any{"holdfast.dev/rollout": "x"}, "spec.podAnnotations"},
	"a name that is too long":            {"metadata.name", strings.Repeat("a", 41), "metadata.name must start with a letter"},
	"a name of forty letters":            {"metadata.name", strings.Repeat("a", 40), ""},
	"a name that begins with a digit":    {"metadata.name", "1orders", "metadata.name must start with a letter"},
	"a name with a dot":                  {"metadata.name", "or.ders", "metadata.name must start with a letter"},
	"suspend that is a word":             {"spec.suspend", "yes", "spec.suspend"},
	"a pull secret twice":                {"spec.imagePullSecrets", []any{map[string]any{"name": "a"}, map[string]any{"name": "a"}}, "spec.imagePullSecrets[1]"},
	"a toleration":                       {"spec.tolerations", []any{map[string]any{"key": "db", "operator": "Exists"}}, ""},
	"a node selector that is no mapping": {"spec.nodeSelector", "ssd", "spec.nodeSelector"},
	"peers by labels": {"spec.network", map[string]any{"from": []any{map[string]any{"podSelector": map[string]any{"matchLabels": map[string]any{"app": "shop"}},
		"namespaceSelector": map[string]any{"matchExpressions": []any{map[string]any{"key": "team", "operator": "In", "values": []any{"shop"}}}}}}}, ""},
	"peers by address":                  {"spec.network.from", []any{map[string]any{"ipBlock": map[string]any{"cidr": "10.0.0.0/8", "except": []any{"10.1.0.0/16"}}}}, ""},
	"all pods of the namespace":         {"spec.network.from", []any{map[string]any{"podSelector": map[string]any{}}}, ""},
	"no network policy":                 {"spec.network.policy", "None", ""},
	"an unknown network policy":         {"spec.network.policy", "Open", "spec.network.policy"},
	"peers without a policy":            {"spec.network", map[string]any{"policy": "None", "from": []any{map[string]any{"podSelector": map[string]any{}}}}, "no effect while network.policy is None"},
	"no peer":                           {"spec.network.from", []any{}, "network.from must name at least one peer"},
	"no reader of metrics":              {"spec.network.metricsFrom", []any{}, "network.metricsFrom must name at least one peer"},
	"a peer that is nobody":             {"spec.network.from", []any{map[string]any{}}, "a peer needs podSelector, namespaceSelector or ipBlock"},
	"a peer by labels and address":      {"spec.network.from", []any{map[string]any{"podSelector": map[string]any{}, "ipBlock": map[string]any{"cidr": "10.0.0.0/8"}}}, "either ipBlock or selectors"},
	"a peer by an address without bits": {"spec.network.from", []any{map[string]any{"ipBlock": map[string]any{"cidr": "10.0.0.1"}}}, "must be a range of addresses"},
	"an exception that is none":         {"spec.network.from", []any{map[string]any{"ipBlock": map[string]any{"cidr": "10.0.0.0/8", "except": []any{"ten"}}}}, "ipBlock.except must hold ranges"},
	"an exception outside of the range": {"spec.network.from", []any{map[string]any{"ipBlock": map[string]any{"cidr": "10.0.0.0/8", "except": []any{"192.168.0.0/16"}}}}, "must lie within ipBlock.cidr"},
	"a peer by a label that is none":    {"spec.network.from", []any{map[string]any{"podSelector": map[string]any{"matchLabels": map[string]any{"app": "the shop"}}}}, "a label's value has at most 63 letters"},
	"a peer by an unknown operator":     {"spec.network.from", []any{map[string]any{"podSelector": map[string]any{"matchExpressions": []any{map[string]any{"key": "a", "operator": "Equals"}}}}}, "operator"},
	"a peer in no value":                {"spec.network.from", []any{map[string]any{"podSelector": map[string]any{"matchExpressions": []any{map[string]any{"key": "a", "operator": "In"}}}}}, "operators In and NotIn need values"},
	"backups":                           {"spec.backup", map[string]any{}, ""},
	"backups by a schedule of words":    {"spec.backup.schedule", "every night", "five fields"},
	"backups by a line with seconds":    {"spec.backup.schedule", "0 0 2 * * *", "five fields"},
	"backups every quarter of an hour":  {"spec.backup.schedule", "*/15 * * * *", ""},
	"backups in a zone that is none":    {"spec.backup.timeZone", "Mars/Base", "spec.backup.timeZone"},
	"backups in a zone":                 {"spec.backup.timeZone", "Europe/Berlin", ""},
	"a retention without a unit":        {"spec.backup.retention", "7", "hours, days or weeks"},
	"a retention of nothing":            {"spec.backup.retention", "0d", "hours, days or weeks"},
	"a retention of weeks":              {"spec.backup.retention", "4w", ""},
	"no backup to keep":                 {"spec.backup.maxBackups", int64(0), "spec.backup.maxBackups"},
	"backups to another kind of store":  {"spec.backup.destination", map[string]any{"url": "ftp://host/x"}, "must be s3://bucket"},
	"backups to a directory":            {"spec.backup.destination", map[string]any{"url": "file:///etc"}, "must be s3://bucket"},
	"a destination with keys in it":     {"spec.backup.destination", map[string]any{"url": "s3://id:key@bucket"}, "must be s3://bucket"},
	"a destination without an address":  {"spec.backup.destination", map[string]any{"endpoint": "https://minio"}, "spec.backup.destination.url"},
	"an endpoint without a scheme":      {"spec.backup.destination", map[string]any{"url": "s3://b", "endpoint": "minio:9000"}, "must be an address"},
	"a destination":                     {"spec.backup.destination", map[string]any{"url": "s3://acme-backups/pg", "endpoint": "https://minio.example:9000", "pathStyle": true, "credentialsSecretRef": map[string]any{"name": "keys"}}, ""},
	"a tiny volume for backups":         {"spec.backup.volume", map[string]any{"size": "1Mi"}, "backup.volume.size must be at least 64Mi"},
	"a volume for backups":              {"spec.backup.volume", map[string]any{"size": "20Gi", "storageClass": "slow"}, ""},
	"a certificate of one's own":        {"spec.tls", map[string]any{"certificateSecretRef": map[string]any{"name": "orders-server"}}, ""},
	"a CA of one's own":                 {"spec.tls", map[string]any{"caSecretRef": map[string]any{"name": "orders.ca"}}, ""},
	"no certificate of one's own":       {"spec.tls", map[string]any{}, ""},
	"a certificate without a name":      {"spec.tls", map[string]any{"certificateSecretRef": map[string]any{}}, "spec.tls.certificateSecretRef.name"},
	"a Secret's name in upper case":     {"spec.tls", map[string]any{"caSecretRef": map[string]any{"name": "Orders"}}, "spec.tls.caSecretRef.name"},
	"a Secret in another namespace":     {"spec.tls", map[string]any{"caSecretRef": map[string]any{"name": "a", "namespace": "b"}}, "spec.tls.caSecretRef.namespace"},
	"Holdfast's certificate":            {"spec.tls", map[string]any{"certificateSecretRef": map[string]any{"name": "orders-tls"}}, "spec.tls must name Secrets of your own"},
	"Holdfast's CA":                     {"spec.tls", map[string]any{"caSecretRef": map[string]any{"name": "orders-ca"}}, "spec.tls must name Secrets of your own"},
}

// inputOfMySQL is judged so, whatever other kinds do with it.
var inputOfMySQL = map[string]input{
	"a series":                           {"spec.version", "8.4", ""},
	"a patch":                            {"spec.version", "9.7.12", ""},
	"a series without long-term support": {"spec.version", "9.1", "must be a version of MySQL with long-term support"},
	"a series out of support":            {"spec.version", "8.0.36", "must be a version of MySQL with long-term support"},
	"a patch with a leading zero":        {"spec.version", "9.7.04", "must be a version of MySQL with long-term support"},
	"a version that is a number":         {"spec.version", int64(9), "write the version in quotes"},
	"a volume that MySQL fills itself":   {"spec.storage.size", "256Mi", "spec.storage.size must be at least 512Mi"},
	"two members":                        {"spec.replicas", int64(2), "spec.replicas must be odd"},
	"three members":                      {"spec.replicas", int64(3), ""},
	"backups":                            {"spec.backup", map[string]any{}, ""},
	"an archive":                         {"spec.backup", map[string]any{"continuous": true, "walBudget": "64Mi", "destination": map[string]any{"url": "s3://acme/team"}}, ""},
	"a budget of most of the volume":     {"spec.backup", map[string]any{"continuous": true, "walBudget": "900Gi", "destination": map[string]any{"url": "s3://acme/team"}}, "spec.backup.walBudget must be at most half of spec.storage.size"},
	"a restore":                          {"spec.restore", map[string]any{"backup": "orders-1"}, ""},
	"all of the archive":                 {"spec.restore", map[string]any{"backup": "orders-1", "target": map[string]any{"latest": true}}, ""},
	"a point in time":                    {"spec.restore", map[string]any{"backup": "orders-1", "target": map[string]any{"time": "2026-03-01T12:00:00Z"}}, ""},
	"a transaction":                      {"spec.restore", map[string]any{"backup": "orders-1", "target": map[string]any{"gtid": "3e11fa47-71ca-11e1-9e33-c80aa9429562:23"}}, ""},
	"a transaction with a tag":           {"spec.restore", map[string]any{"backup": "orders-1", "target": map[string]any{"gtid": "3E11FA47-71ca-11e1-9e33-c80aa9429562:nightly:23"}}, ""},
	"several transactions":               {"spec.restore", map[string]any{"backup": "orders-1", "target": map[string]any{"gtid": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-23"}}, "must be the GTID of one transaction"},
	"a transaction and a time":           {"spec.restore", map[string]any{"backup": "orders-1", "target": map[string]any{"gtid": "3e11fa47-71ca-11e1-9e33-c80aa9429562:23", "time": "2026-03-01T12:00:00Z"}}, "name one of time, lsn, gtid, name and latest"},
	"a position of PostgreSQL":           {"spec.restore", map[string]any{"backup": "orders-1", "target": map[string]any{"lsn": "0/5000028"}}, "use time, gtid or latest"},
	"a restore point of PostgreSQL":      {"spec.restore", map[string]any{"backup": "orders-1", "target": map[string]any{"name": "before"}}, "use time, gtid or latest"},
	"a certificate of one's own":         {"spec.tls", map[string]any{"certificateSecretRef": map[string]any{"name": "orders-server"}}, "remove spec.tls.certificateSecretRef"},
	"too little memory":                  {"spec.resources.limits", map[string]any{"memory": "512Mi"}, "spec.resources.limits.memory must be at least 1Gi"},
	"enough memory":                      {"spec.resources.limits", map[string]any{"memory": "1Gi"}, ""},
	"a parameter":                        {"spec.parameters", map[string]any{"max_connections": "200"}, ""},
	"a parameter of the group":           {"spec.parameters", map[string]any{"group_replication_flow_control_mode": "DISABLED"}, ""},
	"a parameter with dashes":            {"spec.parameters", map[string]any{"max-connections": "200"}, "is no name of a MySQL system variable"},
	"a parameter that Holdfast sets":     {"spec.parameters", map[string]any{"sync_binlog": "0"}, "spec.parameters.sync_binlog is set by Holdfast"},
	"a parameter of a prefix":            {"spec.parameters", map[string]any{"group_replication_bootstrap_group": "ON"}, "spec.parameters.group_replication_bootstrap_group is set by Holdfast"},
	"a parameter with a modifier":        {"spec.parameters", map[string]any{"loose_server_id": "5"}, "spec.parameters.loose_server_id is set by Holdfast"},
	"a name that begins with skip":       {"spec.parameters", map[string]any{"skip_show_database": "ON"}, ""},
	"a database that exists":             {"spec.bootstrap", map[string]any{"database": "mysql"}, "spec.bootstrap.database must not be mysql"},
	"an owner of Holdfast's":             {"spec.bootstrap", map[string]any{"owner": "holdfast_clone"}, "spec.bootstrap.owner must not be root"},
	"an owner":                           {"spec.bootstrap", map[string]any{"database": "orders", "owner": "shop"}, ""},
	"an owner that is too long":          {"spec.bootstrap", map[string]any{"owner": strings.Repeat("a", 33)}, "spec.bootstrap.owner"},
}

var inputOfPostgres = map[string]input{
	"a major version":                   {"spec.version", "17", ""},
	"a minor version":                   {"spec.version", "17.4", ""},
	"a version that is a word":          {"spec.version", "latest", "spec.version"},
	"a version out of support":          {"spec.version", "9.6", "spec.version"},
	"a version with a leading zero":     {"spec.version", "17.04", "spec.version"},
	"a version that is a number":        {"spec.version", int64(17), ""},
	"a version that is a small number":  {"spec.version", int64(9), "spec.version"},
	"a version that is a fraction":      {"spec.version", 17.5, "spec.version"},
	"no version":                        {"spec.version", nil, "spec.version"},
	"a parameter":                       {"spec.parameters", map[string]any{"work_mem": "8MB", "pg_stat_statements.max": "100"}, ""},
	"a parameter in upper case":         {"spec.parameters", map[string]any{"Work_Mem": "8MB"}, "spec.parameters"},
	"a parameter that Holdfast owns":    {"spec.parameters", map[string]any{"port": "5433"}, "is set by Holdfast"},
	"a parameter that loses data":       {"spec.parameters", map[string]any{"fsync": "off"}, "is set by Holdfast"},
	"a parameter that is a number":      {"spec.parameters", map[string]any{"max_connections": int64(5)}, ""},
	"a parameter that is a fraction":    {"spec.parameters", map[string]any{"random_page_cost": 1.1}, "spec.parameters.random_page_cost"},
	"a parameter with code in its name": {"spec.parameters", map[string]any{"a = 1\nport": "1"}, "spec.parameters"},
	"an import":                         {"spec.bootstrap.import", map[string]any{"host": "db.example.com", "database": "Old Shop", "user": "reader", "passwordSecretRef": map[string]any{"name": "old"}, "tls": map[string]any{"mode": "verify-full", "caSecretRef": map[string]any{"name": "ca"}}}, ""},
	"an import from nowhere":            {"spec.bootstrap.import", map[string]any{"database": "shop", "user": "reader"}, "spec.bootstrap.import.host"},
	"an import from a URI":              {"spec.bootstrap.import", map[string]any{"host": "postgres://old", "database": "shop", "user": "reader"}, "must be a DNS name or an IP address"},
	"an import that cannot be verified": {"spec.bootstrap.import", map[string]any{"host": "old", "database": "shop", "user": "reader", "tls": map[string]any{"mode": "verify-ca"}}, "caSecretRef is needed"},
	"an import of a mode that is none":  {"spec.bootstrap.import", map[string]any{"host": "old", "database": "shop", "user": "reader", "tls": map[string]any{"mode": "prefer"}}, "spec.bootstrap.import.tls.mode"},
	"a reserved database":               {"spec.bootstrap.database", "template1", "bootstrap.database must not be"},
	"a database with a quote":           {"spec.bootstrap.database", `a"b`, "spec.bootstrap.database"},
	"the superuser as owner":            {"spec.bootstrap.owner", "postgres", "bootstrap.owner must not be"},
	"an owner of ours":                  {"spec.bootstrap.owner", "holdfast_x", "bootstrap.owner must not be"},
	"an archive":                        {"spec.backup", map[string]any{"continuous": true, "walBudget": "512Mi", "destination": map[string]any{"url": "s3://b"}}, ""},
	"a transaction of MySQL":            {"spec.restore", map[string]any{"backup": "orders-1", "target": map[string]any{"gtid": "3e11fa47-71ca-11e1-9e33-c80aa9429562:23"}}, "use time, lsn, name or latest"},
	"an archive on a volume":            {"spec.backup", map[string]any{"continuous": true}, "needs spec.backup.destination"},
	"an archive that is a word":         {"spec.backup", map[string]any{"continuous": "yes", "destination": map[string]any{"url": "s3://b"}}, "spec.backup.continuous"},
	"no archive":                        {"spec.backup", map[string]any{"continuous": false}, ""},
	"a bandwidth":                       {"spec.backup", map[string]any{"bandwidth": "64Ki"}, ""},
	"next to no bandwidth":              {"spec.backup", map[string]any{"bandwidth": "65535"}, "backup.bandwidth must be at least 64Ki"},
	"a budget of most of the volume":    {"spec.backup", map[string]any{"continuous": true, "walBudget": "513Mi", "destination": map[string]any{"url": "s3://b"}}, "backup.walBudget must be at most half of spec.storage.size"},
	"a tiny budget":                     {"spec.backup", map[string]any{"continuous": true, "walBudget": "16Mi", "destination": map[string]any{"url": "s3://b"}}, "backup.walBudget must be at least 32Mi"},
	"a limit of what a failover loses":  {"spec.failover", map[string]any{"maxLag": "16Mi"}, ""},
	"a limit in bytes":                  {"spec.failover", map[string]any{"maxLag": int64(1)}, ""},
	"a limit of nothing":                {"spec.failover", map[string]any{"maxLag": int64(0)}, "spec.failover.maxLag must be at least 1"},
	"a limit that is a word":            {"spec.failover", map[string]any{"maxLag": "none"}, "must be a size in bytes, such as 16Mi"},
	"a member that never leads":         {"spec.failover", map[string]any{"noFailover": []any{int64(8)}}, ""},
	"a member that cannot be":           {"spec.failover", map[string]any{"noFailover": []any{int64(9)}}, "spec.failover.noFailover[0]"},
	"a member that never leads, twice":  {"spec.failover", map[string]any{"noFailover": []any{int64(8), int64(8)}}, "spec.failover.noFailover[1]"},
	"no member that may lead":           {"spec.failover", map[string]any{"noFailover": []any{int64(0), int64(1), int64(2), int64(3), int64(4), int64(5), int64(6), int64(7), int64(8)}}, "failover.noFailover must leave at least one of spec.replicas members"},
	"no limits of a failover":           {"spec.failover", map[string]any{}, ""},
	"a Lease of the shortest duration":  {"spec.failover", map[string]any{"leaseDuration": "10s"}, ""},
	"a Lease of the longest duration":   {"spec.failover", map[string]any{"leaseDuration": "60s"}, ""},
	"a Lease that is too short":         {"spec.failover", map[string]any{"leaseDuration": "9s"}, "spec.failover.leaseDuration must be whole seconds from 10s to 60s"},
	"a Lease that is too long":          {"spec.failover", map[string]any{"leaseDuration": "61s"}, "spec.failover.leaseDuration must be whole seconds from 10s to 60s"},
	"a Lease of part of a second":       {"spec.failover", map[string]any{"leaseDuration": "10.5s"}, "spec.failover.leaseDuration must be whole seconds from 10s to 60s"},
	"a Lease of a minute":               {"spec.failover", map[string]any{"leaseDuration": "1m"}, "spec.failover.leaseDuration must be whole seconds from 10s to 60s"},
	"a Lease without a unit":            {"spec.failover", map[string]any{"leaseDuration": "10"}, "spec.failover.leaseDuration must be whole seconds from 10s to 60s"},
	"a Lease of a number":               {"spec.failover", map[string]any{"leaseDuration": int64(10)}, "spec.failover.leaseDuration"},
	"no synchronous replication":        {"spec.synchronous", map[string]any{}, ""},
	"synchronous replication, Off":      {"spec.synchronous", map[string]any{"mode": "Off", "number": int64(8)}, ""},
	"a quorum without replicas":         {"spec.synchronous", map[string]any{"mode": "Quorum"}, "spec.replicas must be at least 2 in spec.synchronous.mode Quorum, and its default is 1: declare spec.replicas"},
	"a quorum of two without replicas":  {"spec.synchronous", map[string]any{"mode": "Quorum", "number": int64(2)}, "raise spec.replicas, whose default is 1"},
	"a quorum of one member":            {"spec", map[string]any{"version": "17", "storage": map[string]any{"size": "1Gi"}, "replicas": int64(1), "synchronous": map[string]any{"mode": "Quorum"}}, "spec.replicas must be at least 2 in spec.synchronous.mode Quorum, and its default is 1: declare spec.replicas"},
	"a quorum of two members":           {"spec", map[string]any{"version": "17", "storage": map[string]any{"size": "1Gi"}, "replicas": int64(2), "synchronous": map[string]any{"mode": "Quorum"}}, ""},
	"a quorum of all replicas":          {"spec", map[string]any{"version": "17", "storage": map[string]any{"size": "1Gi"}, "replicas": int64(3), "synchronous": map[string]any{"mode": "Quorum", "number": int64(3)}}, "spec.synchronous.number must be less than spec.replicas"},
	"a quorum":                          {"spec", map[string]any{"version": "17", "storage": map[string]any{"size": "1Gi"}, "replicas": int64(3), "synchronous": map[string]any{"mode": "Quorum", "number": int64(2), "whenUnavailable": "Degrade"}}, ""},
	"no standby to acknowledge":         {"spec.synchronous", map[string]any{"number": int64(0)}, "spec.synchronous.number"},
	"nine standbys to acknowledge":      {"spec.synchronous", map[string]any{"number": int64(9)}, "spec.synchronous.number"},
	"a mode that is none":               {"spec.synchronous", map[string]any{"mode": "On"}, "spec.synchronous.mode"},
	"Off without quotes":                {"spec.synchronous", map[string]any{"mode": false}, "spec.synchronous.mode"},
	"a policy that is none":             {"spec.synchronous", map[string]any{"whenUnavailable": "Wait"}, "spec.synchronous.whenUnavailable"},
}

var inputOfEtcd = map[string]input{
	"a version":                           {"spec.version", "3.5.9", ""},
	"a minor version alone":               {"spec.version", "3.6", ""},
	"a minor version that is not out yet": {"spec.version", "3.8", "spec.version"},
	"a patch of one that is to come":      {"spec.version", "3.8.0", ""},
	"a version with the tag's letter":     {"spec.version", "v3.5.9", "spec.version"},
	"a version out of support":            {"spec.version", "3.4.30", "spec.version"},
	"no version":                          {"spec.version", nil, "spec.version"},
	"one member":                          {"spec.replicas", int64(1), ""},
	"two members":                         {"spec.replicas", int64(2), "replicas must be odd"},
	"eleven members":                      {"spec.replicas", int64(11), "spec.replicas"},
	"a quota of half the volume":          {"spec.quota", "512Mi", ""},
	"a quota of more":                     {"spec.quota", "513Mi", "quota must be at most half of spec.storage.size"},
	"a quota that is a number":            {"spec.quota", int64(512 << 20), ""},
	"a tiny quota":                        {"spec.quota", "1Mi", "quota must be at least 16Mi"},
	"a quota that is none":                {"spec.quota", "lots", "spec.quota"},
	"a parameter":                         {"spec.parameters", map[string]any{"snapshot-count": "10000"}, ""},
	"a parameter with dashes in front":    {"spec.parameters", map[string]any{"--snapshot-count": "10000"}, "without dashes in front"},
	"a parameter as the environment":      {"spec.parameters", map[string]any{"ETCD_SNAPSHOT_COUNT": "1"}, "name of an etcd flag"},
	"a parameter that Holdfast owns":      {"spec.parameters", map[string]any{"data-dir": "/x"}, "is set by Holdfast"},
	"an address":                          {"spec.parameters", map[string]any{"listen-client-urls": "http://0.0.0.0:2379"}, "is set by Holdfast"},
	"a parameter that loses data":         {"spec.parameters", map[string]any{"unsafe-no-fsync": "true"}, "is set by Holdfast"},
	"a schedule":                          {"spec.defragmentation.schedule", "30 2 * * 0", ""},
	"a schedule by names":                 {"spec.defragmentation.schedule", "*/5,7 2-4  1 jan-MAR,dec Sun", ""},
	"a schedule by a word":                {"spec.defragmentation.schedule", "@daily", ""},
	"a schedule that is empty":            {"spec.defragmentation.schedule", "", "must be five fields"},
	"a schedule with seconds":             {"spec.defragmentation.schedule", "0 30 2 * * 0", "must be five fields"},
	"a schedule with its time zone":       {"spec.defragmentation.schedule", "CRON_TZ=Asia/Tokyo 30 2 * * 0", "A time zone goes into timeZone"},
	"a schedule by duration":              {"spec.defragmentation.schedule", "@every 5h", "must be five fields"},
	"a schedule in prose":                 {"spec.defragmentation.schedule", "every night at two", "must be five fields"},
	"a time zone":                         {"spec.defragmentation", map[string]any{"schedule": "@daily", "timeZone": "America/Argentina/Ushuaia"}, ""},
	"a time zone that is none":            {"spec.defragmentation", map[string]any{"schedule": "@daily", "timeZone": "Mars/Olympus"}, "spec.defragmentation.timeZone"},
	"the time zone of the machine":        {"spec.defragmentation", map[string]any{"schedule": "@daily", "timeZone": "Local"}, "must be a time zone by its name"},
	"a time zone as an offset":            {"spec.defragmentation", map[string]any{"schedule": "@daily", "timeZone": "+02:00"}, "must be a time zone by its name"},
	"a parameter that forks":              {"spec.parameters", map[string]any{"force-new-cluster": "true"}, "is set by Holdfast"},
	"a threshold":                         {"spec.defragmentation.thresholdPercent", int64(30), ""},
	"a threshold that never rests":        {"spec.defragmentation.thresholdPercent", int64(5), "spec.defragmentation.thresholdPercent"},
	"a bootstrap, which etcd has none of": {"spec.bootstrap", map[string]any{"database": "app"}, "spec.bootstrap"},
	"a version that is a word":            {"spec.version", "latest", "spec.version"},
	"a version with a leading zero":       {"spec.version", "3.6.04", "spec.version"},
	"a parameter in upper case":           {"spec.parameters", map[string]any{"Snapshot-Count": "5000"}, "spec.parameters"},
	"a parameter that is a number":        {"spec.parameters", map[string]any{"snapshot-count": int64(5000)}, ""},
	"a threshold of nothing":              {"spec.defragmentation", map[string]any{"thresholdPercent": int64(0)}, "spec.defragmentation.thresholdPercent"},
	"an archive, which etcd has none of":  {"spec.backup", map[string]any{"continuous": true, "destination": map[string]any{"url": "s3://b"}}, "etcd keeps no log that could be archived"},
	"a budget for an archive":             {"spec.backup", map[string]any{"walBudget": "64Mi"}, "etcd keeps no log that could be archived"},
	"no archive":                          {"spec.backup", map[string]any{"continuous": false}, ""},
	"no defragmentation":                  {"spec.defragmentation", map[string]any{"thresholdPercent": int64(100)}, ""},
}

// Bad input is refused with a message that names the field; its good
// neighbours are taken.
func TestValidation(t *testing.T) {
	t.Parallel()
	w := &world{Cluster: apitest.New(t), t: t}
	for kind, own := range map[string]struct {
		version string
		inputs  map[string]input
	}{"PostgresCluster": {"17", inputOfPostgres}, "EtcdCluster": {"3.6.16", inputOfEtcd}, "MySQLCluster": {"9.7", inputOfMySQL}} {
		inputs := maps.Clone(inputOfEveryKind)
		maps.Copy(inputs, own.inputs)
		for name, in := range inputs {
			t.Run(kind+"/"+name, func(t *testing.T) { w.judges(t, kind, own.version, in) })
		}
	}
}

func (w *world) judges(t *testing.T, kind, version string, in input) {
	t.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind,
		"metadata": map[string]any{"name": "orders", "namespace": w.Namespace},
		"spec":     map[string]any{"version": version, "storage": map[string]any{"size": "1Gi"}},
	}}
	path := strings.Split(in.path, ".")
	if in.value == nil {
		unstructured.RemoveNestedField(obj.Object, path...)
	} else if err := unstructured.SetNestedField(obj.Object, in.value, path...); err != nil {
		t.Fatal(err)
	}
	err := w.As(t, "kubectl").Create(t.Context(), obj, client.DryRunAll, strictly)
	switch {
	case in.refused == "" && err != nil:
		t.Errorf("refused: %v", err)
	case in.refused != "" && err == nil:
		t.Error("accepted")
	case in.refused != "" && !strings.Contains(err.Error(), in.refused):
		t.Errorf("refused without naming %q: %v", in.refused, err)
	}
}
