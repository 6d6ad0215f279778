package loginsight

// etcdClasses are what is known of etcd's text log, the worst first. EtcdAlarmRaised is
// none of a line: etcd 3.6 and later raise most alarms without one, so the agent reads them
// in etcd's status.
var etcdClasses = []*Class{
	{Name: "EtcdDataDiffers", Severity: Critical, Meaning: "The data of two members differs.",
		Remedy: "Keep all volumes, and restore the latest good backup. See the recovery guide."},
	{Name: "EtcdAlarmRaised", Severity: Critical, Meaning: "etcd raised an alarm: its quota is used up, or data is corrupt. It refuses writes.",
		Remedy: "Quota: delete keys, or raise spec.quota to at most half of spec.storage.size; Holdfast defragments by itself. Corrupt data: see the recovery guide. The condition Stalled or Degraded says which."},
	{Name: "EtcdQuorumLost", Severity: Critical, Meaning: "A leader stepped down, since it does not reach a majority.",
		Remedy: "Check the members and the network between them."},

	{Name: "EtcdLeaderLost", Severity: Error, Meaning: "A member knows no leader any more.",
		Remedy: "Expected once in a leader transfer. Otherwise check the disk and the network of the leader."},
	{Name: "EtcdClockDrift", Severity: Error, Unit: Milliseconds, Meaning: "The clocks of two members differ by more than a second.",
		Remedy: "Synchronize the clocks of the nodes."},
	{Name: "EtcdDiskSlow", Severity: Error, Unit: Milliseconds, Meaning: "A flush of the Raft log took longer than a second.",
		Remedy: "Use a faster storage class. etcd needs flushes below 10 ms."},
	{Name: "EtcdHeartbeatLate", Severity: Error, Unit: Milliseconds, Meaning: "The leader sent a heartbeat late: its disk or its processor is too slow.",
		Remedy: "Use a faster storage class, or raise spec.resources."},
	{Name: "EtcdReadIndexLate", Severity: Error, Meaning: "A linearizable read waited too long for the leader.",
		Remedy: "Check the disk of the leader and the network between the members."},

	{Name: "EtcdSlowApply", Severity: Warning, Unit: Milliseconds, Meaning: "A request took longer to apply than expected.",
		Remedy: "Read smaller ranges, compact and defragment, or use a faster storage class."},
	{Name: "EtcdApplyFailed", Severity: Warning, Unit: Milliseconds, Meaning: "A request failed when it was applied.",
		Remedy: "Look at the client's error. A quota that is used up does that, too."},
	{Name: "EtcdPeerUnreachable", Severity: Warning, Meaning: "A member does not reach another one.",
		Remedy: "Expected while a member restarts. Otherwise check the network and the member."},
	{Name: "EtcdPeerOverloaded", Severity: Warning, Meaning: "Messages to another member were dropped, since they are sent too slowly.",
		Remedy: "Check the network between the members, and the other member's disk."},
	{Name: "EtcdTLSRejected", Severity: Warning, Meaning: "A connection was refused: its certificate, or none, is not accepted.",
		Remedy: "Check the client's certificate and CA. Probes of ports cause it, too."},
	{Name: "EtcdSlowRequest", Severity: Warning, Unit: Milliseconds, Meaning: "A request of a client took longer than 300 ms.",
		Remedy: "See EtcdSlowApply and EtcdDiskSlow."},

	{Name: "EtcdElection", Severity: Notice, Meaning: "A member started an election.",
		Remedy: "Expected when members start. See EtcdLeaderLost."},
	{Name: "EtcdLeaderElected", Severity: Notice, Meaning: "A member knows a new leader.", Remedy: "None."},
	{Name: "EtcdCompacted", Severity: Notice, Unit: Milliseconds, Meaning: "Old revisions were compacted.", Remedy: "None."},
	{Name: "EtcdDefragmented", Severity: Notice, Unit: Milliseconds, Meaning: "A member was defragmented.", Remedy: "None."},
	{Name: "EtcdStarted", Severity: Notice, Meaning: "etcd serves clients.", Remedy: "None."},
	{Name: "EtcdStopping", Severity: Notice, Meaning: "etcd was asked to stop.", Remedy: "None."},
}
