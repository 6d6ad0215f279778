package loginsight

// mysqlClasses are what is known of MySQL's text log, the worst first.
var mysqlClasses = []*Class{
	{Name: "MySQLDataCorrupted", Severity: Critical, Meaning: "A page of InnoDB failed its check.",
		Remedy: "Keep the volume, compare with another member, and restore a backup if all are affected."},
	{Name: "MySQLServerCrashed", Severity: Critical, Unit: Signal, Meaning: "The server found an error in itself, and ended.",
		Remedy: "Read the text log of the member, and report the crash to the project."},
	{Name: "MySQLDiskFull", Severity: Critical, Meaning: "A file could not grow for want of disk space.",
		Remedy: "Raise spec.storage.size, or set spec.storage.autoGrow."},
	{Name: "MySQLStorageFailed", Severity: Critical, Meaning: "A read, a write or a flush of a file failed.",
		Remedy: "Check the volume and its node. Move the member to another volume."},
	{Name: "MySQLMajorityLost", Severity: Critical, Meaning: "A member does not reach a majority of the group. It blocks writes.",
		Remedy: "Check the members and the network between them."},

	{Name: "MySQLMemberExpelled", Severity: Error, Meaning: "The group expelled this member, since it did not reach it in time.",
		Remedy: "The agent brings it back. Often: check the network and the processors of its node."},
	{Name: "MySQLMemberDiverged", Severity: Error, Meaning: "The member has transactions that the group does not have.",
		Remedy: "See the condition Stalled, reason DataDiverged."},
	{Name: "MySQLReplicationFailed", Severity: Error, Meaning: "A replication channel failed.",
		Remedy: "Read the text log of the member. Expected while the source of a recovery restarts."},
	{Name: "MySQLCrashRecovery", Severity: Error, Meaning: "The server started on data that was not shut down in order.",
		Remedy: "Find what ended the server before: memory, or the end of its pod."},

	{Name: "MySQLTableFull", Severity: Warning, Meaning: "A table, most often a temporary one, cannot grow.",
		Remedy: "Raise spec.parameters.tmp_table_size or temptable_max_ram, or spec.storage.size."},
	{Name: "MySQLMemberUnreachable", Severity: Warning, Meaning: "A member does not reach another one.",
		Remedy: "Expected while a member restarts. Otherwise check the network and the member."},
	{Name: "MySQLMembersLeft", Severity: Warning, Meaning: "Members left the group.",
		Remedy: "Expected during restarts and scaling."},
	{Name: "MySQLSemaphoreWait", Severity: Warning, Meaning: "A thread of InnoDB waited for another one for minutes.",
		Remedy: "Check the disk. Read the text log of the member for the thread that holds the lock."},
	{Name: "MySQLDeadlock", Severity: Warning, Meaning: "Two transactions waited for each other, and one was rolled back.",
		Remedy: "Lock rows in one order. innodb_print_all_deadlocks and log_error_verbosity=3 report these."},

	{Name: "MySQLConnectionClosed", Severity: Notice, Meaning: "A session was still open when the server stopped.", Remedy: "None: clients connect again."},
	{Name: "MySQLPrimaryElected", Severity: Notice, Meaning: "The group elected a new primary.", Remedy: "None."},
	{Name: "MySQLGroupChanged", Severity: Notice, Meaning: "The members of the group changed.", Remedy: "None."},
	{Name: "MySQLStarted", Severity: Notice, Meaning: "The server accepts connections.", Remedy: "None."},
	{Name: "MySQLStopped", Severity: Notice, Meaning: "The server was shut down.", Remedy: "None."},
}
