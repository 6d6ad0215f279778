package pki

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"testing"
	"time"
)

// fleet is what members mount, and what each has loaded of it.
type fleet struct {
	t       *testing.T
	now     time.Time
	data    map[string][]byte
	members []map[string][]byte
	want    Wanted
	ca      *CA    // that is to sign
	server  *party // that clients are to see; nil for the members' own
	root    *party // of it
	steps   []MaterialStep
}

func newFleet(t *testing.T, ca *CA) *fleet {
	f := &fleet{t: t, now: start, members: make([]map[string][]byte, 3)}
	f.sign(ca)
	f.serve(nil, nil)
	return f
}

// sign says who is to sign from now on.
func (f *fleet) sign(ca *CA) {
	f.ca = ca
	f.want.Leaf, f.want.Signer = member, Signer{CertPEM: ca.CertPEM, Trust: ca.CertPEM}
}

// serve says what clients are to see from now on.
func (f *fleet) serve(server, root *party) {
	f.server, f.root, f.want.Server = server, root, nil
	if server != nil {
		g := ReadServer(server.secret(f.t, root), names)
		if fault := g.FindFault(f.now); fault != "" {
			f.t.Fatal(fault)
		}
		f.want.Server = &g
	}
}

func (f *fleet) loaded() bool {
	for _, m := range f.members {
		if !maps.EqualFunc(m, f.data, bytes.Equal) {
			return false
		}
	}
	return true
}

// step does what is next, and says whether there was anything.
func (f *fleet) step() bool {
	f.t.Helper()
	m := ReadMaterial(f.data, f.want)
	next := m.NextChange(f.loaded(), f.now)
	f.steps = append(f.steps, next.Type)
	switch next.Type {
	case MaterialNone:
		f.steps = f.steps[:len(f.steps)-1]
		return false
	case MaterialTrust:
		f.data = WithTrust(f.data, f.want.Signer.Trust)
	case MaterialIssue:
		certPEM, keyPEM := issue(f.t, f.ca, member, f.now)
		f.data = WithLeaf(f.data, certPEM, keyPEM, f.want.Signer.Trust, f.data["ca.crt"])
	case MaterialForget:
		certPEM, keyPEM := issue(f.t, f.ca, member, f.now)
		f.data = WithLeaf(f.data, certPEM, keyPEM, f.want.Signer.Trust)
	case MaterialTrustServer:
		f.data = WithServerTrust(f.data, f.roots())
	case MaterialServe:
		f.data = WithServerCertificate(f.data, nil, nil)
		if f.server != nil {
			f.data = WithServerCertificate(f.data, f.want.Server.CertPEM, f.server.keyPEM(f.t))
		}
	case MaterialForgetServer:
		f.data = WithServerTrustOnly(f.data, nil)
		if f.server != nil {
			f.data = WithServerTrustOnly(f.data, f.want.Server.Roots)
		}
	}
	return true
}

func (f *fleet) roots() []byte {
	if f.server == nil {
		return f.data["ca.crt"]
	}
	return f.want.Server.Roots
}

// settle goes on until nothing is left to do.
func (f *fleet) settle() {
	f.t.Helper()
	for range 20 {
		for i := range f.members {
			f.members[i] = f.data
		}
		if !f.step() {
			return
		}
	}
	f.t.Fatalf("it does not end: %v", f.steps)
}

func served(data map[string][]byte) []byte {
	if cert := data["server.crt"]; cert != nil {
		return cert
	}
	return data["tls.crt"]
}

// check that all trust each other.
func (f *fleet) check() {
	f.t.Helper()
	for i, reader := range f.members {
		for j, other := range f.members {
			if !verifies(f.t, reader["ca.crt"], other["tls.crt"], f.now) {
				f.t.Fatalf("after %v: member %d does not know member %d", f.steps, i, j)
			}
			// As the agent has it, members' own CA verifies a server, too.
			roots := append(bytes.Clone(reader["server-ca.crt"]), reader["ca.crt"]...)
			if !verifies(f.t, roots, served(other), f.now) {
				f.t.Fatalf("after %v: member %d cannot follow member %d", f.steps, i, j)
			}
		}
		if !verifies(f.t, ClientRoots(f.data), served(reader), f.now) {
			f.t.Fatalf("after %v: clients do not trust member %d", f.steps, i)
		}
	}
}

// Whichever CA is to sign and whatever clients are to see, and however late a member
// takes up what it mounts: all trust each other all the time, and in the
// end just what is wanted is there.
func TestNoMemberIsEverDistrusted(t *testing.T) {
	cas := []*CA{newCA(t, start), newCA(t, start), newCA(t, start)}
	var roots []*party
	for i := range 2 {
		roots = append(roots, signed(t, nil, ecKey(t), authority(fmt.Sprint("root ", i))))
	}
	for seed := range uint64(20) {
		random := mathrand.New(mathrand.NewPCG(seed, 1))
		f := newFleet(t, cas[0])
		f.settle()
		for range 60 {
			switch random.IntN(12) {
			case 0:
				f.sign(cas[random.IntN(len(cas))])
			case 1:
				f.serve(nil, nil)
			case 2:
				root := roots[random.IntN(len(roots))]
				f.serve(signed(t, root, ecKey(t), nil), root)
			case 3, 4, 5:
				f.step()
			default:
				f.members[random.IntN(len(f.members))] = f.data
			}
			f.check()
		}
		f.settle()
		want := map[string][]byte{"tls.crt": f.data["tls.crt"], "tls.key": f.data["tls.key"], "ca.crt": f.ca.CertPEM}
		if f.server != nil {
			want["server.crt"], want["server.key"], want["server-ca.crt"] = f.server.pem(), f.server.keyPEM(t), f.root.pem()
		}
		if !maps.EqualFunc(f.data, want, bytes.Equal) || !verifies(t, f.ca.CertPEM, f.data["tls.crt"], f.now) {
			t.Fatalf("seed %d: in the end there is\n%s", seed, f.data)
		}
	}
}

func TestTheOrderOfChanges(t *testing.T) {
	old, young := newCA(t, start), newCA(t, start)
	root := signed(t, nil, ecKey(t), authority("root"))
	server := signed(t, root, ecKey(t), nil)
	for _, tc := range []struct {
		name string
		do   func(*fleet)
		want string
	}{
		{"nothing changes", func(*fleet) {}, "[]"},
		{"the first certificate", func(f *fleet) { f.data = nil }, "[IssueCertificate]"},
		{"another CA signs", func(f *fleet) { f.sign(young) }, "[TrustCA IssueCertificate DropFormerCA]"},
		{"the CA is trusted beside the next one", func(f *fleet) {
			f.want.Signer.Trust = JoinBundle(old.CertPEM, young.CertPEM)
		}, "[IssueCertificate]"},
		{"no CA can sign, and one is to be trusted", func(f *fleet) { f.want.Signer = Signer{Trust: young.CertPEM} }, "[TrustCA]"},
		{"no CA is there", func(f *fleet) { f.want.Signer = Signer{} }, "[]"},
		{"the CA is renewed with its key", func(f *fleet) { f.sign(renewed(f.t, old)) }, "[IssueCertificate DropFormerCA]"},
		{"the CA keeps its key under another name", func(f *fleet) {
			f.sign(renewed(f.t, old, func(c *x509.Certificate) { c.RawSubject = nil }))
		}, "[TrustCA IssueCertificate DropFormerCA]"},
		{"the CA keeps its key and calls it otherwise", func(f *fleet) {
			f.sign(renewed(f.t, old, func(c *x509.Certificate) { c.SubjectKeyId = []byte("another") }))
		}, "[TrustCA IssueCertificate DropFormerCA]"},
		{"two thirds are over", func(f *fleet) { f.now = start.Add(LeafLifetime) }, "[IssueCertificate]"},
		{"clients see another certificate", func(f *fleet) { f.serve(server, root) }, "[TrustServerCA ServeCertificate DropFormerServerCA]"},
		{"on hold", func(f *fleet) {
			f.serve(server, root)
			f.want.Hold = true
		}, "[]"},
		{"it is renewed", func(f *fleet) {
			f.serve(server, root)
			f.settle()
			f.steps = nil
			f.serve(signed(f.t, root, ecKey(f.t), nil), root)
		}, "[ServeCertificate]"},
		{"clients see the members' own again", func(f *fleet) {
			f.serve(server, root)
			f.settle()
			f.steps = nil
			f.serve(nil, nil)
		}, "[TrustServerCA ServeCertificate DropFormerServerCA]"},
		{"its key was damaged", func(f *fleet) {
			f.serve(server, root)
			f.settle()
			f.steps = nil
			f.data = maps.Clone(f.data)
			f.data["server.key"] = root.keyPEM(f.t)
		}, "[ServeCertificate]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFleet(t, old)
			f.settle()
			f.steps = nil
			tc.do(f)
			f.settle()
			if got := fmt.Sprint(f.steps); got != tc.want {
				t.Errorf("the steps are %s, want %s", got, tc.want)
			}
			if again := ReadMaterial(f.data, f.want); f.want.Signer.Trust != nil && !again.IsSettled(f.now) {
				t.Error("it is not settled")
			}
		})
	}
}

// A member that cannot be asked holds a change up, until waiting saves nothing.
func TestAChangeWaitsForMembers(t *testing.T) {
	old, young := newCA(t, start), newCA(t, start)
	root, other := signed(t, nil, ecKey(t), authority("root")), signed(t, nil, ecKey(t), authority("other"))
	f := newFleet(t, old)
	f.serve(signed(t, root, ecKey(t), nil), root)
	f.settle()
	f.sign(young)
	f.step() // the CA is trusted
	next := func() Change { return ReadMaterial(f.data, f.want).NextChange(false, f.now) }
	if c := next(); c.Type != MaterialNone || c.Reason == "" {
		t.Errorf("%+v", c)
	}
	f.now = start.Add(LeafLifetime + time.Second)
	if c := next(); c.Type != MaterialIssue {
		t.Errorf("an expired certificate is waited with: %+v", c)
	}
	f.now = start
	f.settle()
	server := signed(t, other, ecKey(t), func(c *x509.Certificate) { c.NotAfter = start.Add(year) })
	f.serve(server, other)
	f.step() // its root is trusted
	if c := next(); c.Type != MaterialNone || c.Reason == "" {
		t.Errorf("%+v", c)
	}
	f.now = start.Add(91 * 24 * time.Hour)
	if c := next(); c.Type != MaterialServe {
		t.Errorf("an expired certificate is waited with: %+v", c)
	}
}

// A CA near its end signs nothing that lives longer than what is there.
func TestACANearItsEnd(t *testing.T) {
	ca := newCA(t, start)
	f := newFleet(t, ca)
	f.now = start.Add(CALifetime - 10*24*time.Hour)
	f.settle()
	f.steps = nil
	for range 10 * 24 {
		f.now = f.now.Add(time.Hour)
		f.settle()
	}
	if len(f.steps) > 0 || !ReadMaterial(f.data, f.want).RenewalTime().IsZero() {
		t.Errorf("%d certificates in its last days", len(f.steps))
	}
}

// renewed is a CA with the same key and other dates.
func renewed(t *testing.T, ca *CA, changes ...func(*x509.Certificate)) *CA {
	t.Helper()
	p := signed(t, nil, ca.key, func(c *x509.Certificate) {
		authority("orders")(c)
		c.RawSubject, c.SubjectKeyId = ca.cert.RawSubject, ca.cert.SubjectKeyId
		for _, change := range changes {
			change(c)
		}
	})
	again, err := ParseCA(p.pem(), p.keyPEM(t))
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// What is known of members' certificates is little, and no key.
func TestMaterialHoldsNoKey(t *testing.T) {
	root := signed(t, nil, ecKey(t), authority("root"))
	f := newFleet(t, newCA(t, start))
	f.serve(signed(t, root, ecKey(t), nil), root)
	f.settle()
	if said := fmt.Sprintf("%+v %s", ReadMaterial(f.data, f.want), f.want.Server.CertPEM); bytes.Contains([]byte(said), []byte("PRIVATE")) {
		t.Error(said)
	}
}

// The members' own CA changes while clients are about to see another
// certificate: who still sees a member's own is not left alone with it.
func TestBothChangeAtOnce(t *testing.T) {
	root := signed(t, nil, ecKey(t), authority("root"))
	f := newFleet(t, newCA(t, start))
	f.settle()
	f.serve(signed(t, root, ecKey(t), nil), root)
	f.step() // its root is trusted
	f.sign(newCA(t, start))
	for range 10 {
		f.check()
		for i := range f.members {
			f.members[i] = f.data
			f.check()
		}
		f.step()
	}
	f.check()
}
