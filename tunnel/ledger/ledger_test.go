package ledger_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/tunnel/ledger"
)

func open(t *testing.T, dir string) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// orphans are the ids of the orphans of this kind, in order.
func orphans(t *testing.T, l *ledger.Ledger, kind string) []string {
	t.Helper()
	found, err := l.Orphans(kind)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, o := range found {
		ids = append(ids, o.ID)
	}
	slices.Sort(ids)
	return ids
}

// files are the names of what is in the folder.
func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestWhatAKilledProcessRecordedIsAnOrphan(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir, "a", "b")
	l := open(t, dir)
	if got := orphans(t, l, "thing"); got != nil {
		t.Errorf("while the process lives: got %q; want none", got)
	}
	p.kill(t)
	found, err := l.Orphans("thing")
	if err != nil || len(found) != 2 {
		t.Fatalf("got %v, %v; want two orphans", found, err)
	}
	for _, o := range found {
		if want := `{"of":"` + o.ID + `"}`; string(o.Data) != want {
			t.Errorf("data of %s: got %s; want %s", o.ID, o.Data, want)
		}
		for range 2 {
			if err := o.Done(); err != nil {
				t.Error(err)
			}
		}
	}
	if got := files(t, dir); got != nil {
		t.Errorf("got %q; want nothing left on disk", got)
	}
}

func TestOrphansThatAreNotDoneComeBack(t *testing.T) {
	dir := t.TempDir()
	start(t, dir, "a", "b", "c").kill(t)
	first := open(t, dir)
	found, err := first.Orphans("thing")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range found {
		if o.ID == "b" {
			_ = o.Done()
		}
	}
	left := []string{"a", "c"}
	if got := orphans(t, first, "thing"); !slices.Equal(got, left) {
		t.Errorf("same process: got %q; want %q", got, left)
	}
	second := open(t, dir)
	if got := orphans(t, second, "thing"); got != nil {
		t.Errorf("another process meanwhile: got %q; want none", got)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if got := orphans(t, second, "thing"); !slices.Equal(got, left) {
		t.Errorf("another process afterwards: got %q; want %q", got, left)
	}
}

func TestManyProcessesThatStartAtOnceTakeEachOrphanOnce(t *testing.T) {
	dir := t.TempDir()
	for d := range 3 {
		var ids []string
		for i := range 20 {
			ids = append(ids, fmt.Sprintf("%d-%d", d, i))
		}
		start(t, dir, ids...).kill(t)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var took []string
	for range 6 {
		all.Go(func() {
			p := start(t, dir, "take")
			mu.Lock()
			defer mu.Unlock()
			took = append(took, p.took...)
			p.kill(t)
		})
	}
	all.Wait()
	slices.Sort(took)
	if distinct := len(slices.Compact(slices.Clone(took))); len(took) != 60 || distinct != 60 {
		t.Errorf("got %d orphans, %d of them distinct; want 60", len(took), distinct)
	}
	if got := files(t, dir); got != nil {
		t.Errorf("got %q; want nothing left on disk", got)
	}
}

func TestKindsAreCleanedUpByWhoeverCan(t *testing.T) {
	dir := t.TempDir()
	dead := open(t, dir)
	for _, kind := range []string{"one", "two"} {
		if err := dead.Record(kind, "x", nil); err != nil {
			t.Fatal(err)
		}
	}
	_ = dead.Close()
	first, second := open(t, dir), open(t, dir)
	found, err := first.Orphans("one")
	if err != nil || len(found) != 1 {
		t.Fatalf("got %v, %v; want one orphan", found, err)
	}
	if err := found[0].Done(); err != nil {
		t.Fatal(err)
	}
	if got := orphans(t, first, "three"); got != nil {
		t.Errorf("a kind that nobody recorded: got %q; want none", got)
	}
	if got := orphans(t, second, "two"); !slices.Equal(got, []string{"x"}) {
		t.Errorf("got %q; want the orphan that the first process has no use for", got)
	}
}

func TestForgottenAndReplacedEntries(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	for _, step := range []error{
		l.Forget("kind", "never recorded"),
		l.Record("kind", "gone", nil),
		l.Record("kind", "kept", json.RawMessage(`1`)),
		l.Record("kind", "kept", json.RawMessage("{\n\"a\": 2}")),
		l.Forget("kind", "gone"),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	if err := l.Record("kind", "bad", json.RawMessage(`{`)); err == nil {
		t.Error("data that is not JSON was recorded")
	}
	_ = l.Close()
	found, err := open(t, dir).Orphans("kind")
	if err != nil || len(found) != 1 || found[0].ID != "kept" || string(found[0].Data) != `{"a":2}` {
		t.Errorf("got %+v, %v; want the newest data of the one that was kept", found, err)
	}
}

func TestFilesArePrivateAndGoneWhenEmpty(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "ledger")
	l := open(t, dir)
	if err := l.Record("kind", "x", nil); err != nil {
		t.Fatal(err)
	}
	names := files(t, dir)
	if len(names) != 1 {
		t.Fatalf("got files %q; want one", names)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, names[0]): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v; want mode %o", path, info.Mode(), err, want)
		}
	}
	if err := l.Forget("kind", "x"); err != nil {
		t.Fatal(err)
	}
	if got := files(t, dir); got != nil {
		t.Errorf("got %q; want no file without entries", got)
	}
}

func TestWhatIsNoLedgerIsLeftAloneAndHarmsNothing(t *testing.T) {
	dir := t.TempDir()
	start(t, dir, "a").kill(t)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("notes.txt", "not ours")
	write("garbage.ledger", "\x00\xff{{{\nnull\n[]\n{\"kind\":3}\n{\"id\":\"no kind\"}\n")
	write("torn.ledger", "{\"kind\":\"thing\",\"id\":\"b\"}\n{\"kind\":\"thing\",\"id\":\"c")
	write("empty.ledger", "")
	write("young.ledger.new", "")
	write("stray.ledger.new", "")
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "stray.ledger.new"), old, old); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder.ledger"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.ledger"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := open(t, dir)
	found, err := l.Orphans("thing")
	if err != nil || len(found) != 2 {
		t.Fatalf("got %+v, %v; want a and b", found, err)
	}
	for _, o := range found {
		if err := o.Done(); err != nil {
			t.Error(err)
		}
	}
	want := []string{"folder.ledger", "notes.txt", "pipe.ledger", "young.ledger.new"}
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("left: got %q; want %q", got, want)
	}
}

func TestParallelUse(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 20 {
				id := fmt.Sprintf("%d-%d", w, i)
				if err := l.Record("kind", id, nil); err != nil {
					t.Error(err)
				}
				if _, err := l.Orphans("kind"); err != nil {
					t.Error(err)
				}
				if i%2 == 0 {
					_ = l.Forget("kind", id)
				}
			}
		})
	}
	all.Wait()
	_ = l.Close()
	if got := orphans(t, open(t, dir), "kind"); len(got) != 80 {
		t.Errorf("got %d entries; want 80", len(got))
	}
}

func TestAClosedLedgerRefusesAndANilOneForgets(t *testing.T) {
	l := open(t, t.TempDir())
	for range 2 {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, err := l.Orphans("kind")
	for _, err := range []error{err, l.Record("kind", "x", nil), l.Forget("kind", "x")} {
		if !errors.Is(err, ledger.ErrClosed) {
			t.Errorf("got %v; want ErrClosed", err)
		}
	}
	var none *ledger.Ledger
	found, err := none.Orphans("kind")
	if err := errors.Join(err, none.Record("kind", "x", nil), none.Forget("kind", "x"), none.Close()); err != nil || found != nil {
		t.Errorf("nil ledger: got %v, %v; want nothing", found, err)
	}
}

func FuzzFilesOfOthers(f *testing.F) {
	f.Add([]byte("{\"kind\":\"k\",\"id\":\"a\",\"data\":{\"n\":1}}\n{\"kind\":\"k\",\"id\":\"a\"}\n"))
	f.Add([]byte("{\"kind\":\"k\",\"id\":\"a\",\"data\":"))
	f.Add([]byte("\xff\n\n[]\nnull\n\"\""))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "1.ledger"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		l := open(t, dir)
		found, err := l.Orphans("k")
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range found {
			if err := o.Done(); err != nil {
				t.Fatal(err)
			}
		}
		if again, err := l.Orphans("k"); err != nil || len(again) != 0 {
			t.Errorf("got %+v, %v after all were done; want none", again, err)
		}
	})
}
