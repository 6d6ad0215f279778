//go:build e2e || soak

package e2e

// mysqlRestoresBackup: a backup that is made while an application writes is of a secondary,
// and has what was acknowledged before. Another cluster begins with it, as a group of
// another name.
func mysqlRestoresBackup(c *subject) {
	c.t.Helper()
	mysql.keepValue(c, "7")
	had, b := c.copiedUnderWrites("by-hand")
	source := c.waitReady().CommonStatus()
	if b.Status.Source == source.Primary {
		c.t.Errorf("%s was copied, which leads", b.Status.Source)
	}
	again := createSubject(c.t, mysql, c.namespace, "again", 1, "restore: {backup: "+b.Name+"}", "backup: {enabled: false}")
	again.wantRestored(had, b)
	if id := again.getCluster().CommonStatus().SystemIdentifier; id == "" || id == source.SystemIdentifier {
		c.t.Errorf("the restored cluster has the group %q, and its source %q", id, source.SystemIdentifier)
	}
}
