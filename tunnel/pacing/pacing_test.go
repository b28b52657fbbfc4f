package pacing_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/tunnel/pacing"
)

func TestTurnsAreEvenlySpacedAndNeverSavedUp(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		synctest.Test(t, func(t *testing.T) {
			p := shared(t, dir, 10, 0)
			time.Sleep(time.Hour)
			start := time.Now()
			for i := range 5 {
				if _, err := p.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got, want := time.Since(start), time.Duration(i)*100*time.Millisecond; got != want {
					t.Errorf("turn %d: got it after %s; want %s", i, got, want)
				}
			}
		})
	}
}

func TestTurnsAreTakenInTheOrderOfAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := shared(t, "", 10, 0)
		order := make(chan int, 20)
		for i := range cap(order) {
			go func() {
				_, _ = p.Wait(t.Context())
				order <- i
			}()
			synctest.Wait()
		}
		for i := range cap(order) {
			if got := <-order; got != i {
				t.Fatalf("turn %d: got caller %d", i, got)
			}
		}
	})
}

func TestABacklogIsRefusedAtOnce(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		synctest.Test(t, func(t *testing.T) {
			p := shared(t, dir, 1, 10*time.Second)
			start := time.Now()
			var mu sync.Mutex
			refused, turns := 0, 0
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() {
					_, err := p.Wait(t.Context())
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						turns++
					case errors.Is(err, pacing.ErrBacklog) && time.Since(start) == 0:
						refused++
					default:
						t.Errorf("got %v after %s", err, time.Since(start))
					}
				})
			}
			all.Wait()
			if turns != 11 || refused != 89 || time.Since(start) != 10*time.Second {
				t.Errorf("got %d turns in %s and %d refused; want 11 in 10s and 89", turns, time.Since(start), refused)
			}
		})
	}
}

func TestThoseWhoLeaveCostNoTurn(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		synctest.Test(t, func(t *testing.T) {
			p := shared(t, dir, 1, time.Minute)
			gone := errors.New("gone")
			for range 3 { // together they were a backlog
				ctx, cancel := context.WithCancelCause(t.Context())
				var all sync.WaitGroup
				for range 50 {
					all.Go(func() {
						if _, err := p.Wait(ctx); err != nil && !errors.Is(err, gone) {
							t.Errorf("got %v; want the cause", err)
						}
					})
				}
				time.Sleep(2500 * time.Millisecond)
				cancel(gone)
				all.Wait()
			}
			start := time.Now()
			if _, err := p.Wait(t.Context()); err != nil || time.Since(start) != 500*time.Millisecond {
				t.Errorf("got %v after %s; want the next turn", err, time.Since(start))
			}
		})
	}
}

func TestAPauseIsObeyedAndEndsAsOneTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := shared(t, "", 10, time.Minute)
		start := time.Now()
		if err := p.Pause(t.Context(), start.Add(30*time.Second)); err != nil {
			t.Fatal(err)
		}
		if err := p.Pause(t.Context(), start.Add(time.Second)); err != nil { // does not shorten it
			t.Fatal(err)
		}
		times := make(chan time.Duration, 3)
		for range cap(times) {
			go func() {
				_, _ = p.Wait(t.Context())
				times <- time.Since(start)
			}()
		}
		var got []time.Duration
		for range cap(times) {
			got = append(got, <-times)
		}
		if want := []time.Duration{30 * time.Second, 30*time.Second + 100*time.Millisecond, 30*time.Second + 200*time.Millisecond}; !slices.Equal(got, want) {
			t.Errorf("got %v; want %v", got, want)
		}
	})
}

func TestAPauseLongerThanAnyoneWaitsIsABacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := shared(t, "", 1, time.Minute)
		waiting := make(chan error, 2)
		for range cap(waiting) {
			go func() {
				_, err := p.Wait(t.Context())
				waiting <- err
			}()
		}
		synctest.Wait()
		if err := p.Pause(t.Context(), time.Now().Add(24*time.Hour)); err != nil {
			t.Fatal(err)
		}
		if first, second := <-waiting, <-waiting; first != nil || !errors.Is(second, pacing.ErrBacklog) {
			t.Errorf("got %v and %v; want a turn, and ErrBacklog for the one behind", first, second)
		}
		if _, err := p.Wait(t.Context()); !errors.Is(err, pacing.ErrBacklog) {
			t.Errorf("got %v; want ErrBacklog", err)
		}
		time.Sleep(time.Hour)
		if _, err := p.Wait(t.Context()); err != nil {
			t.Errorf("an hour later: got %v; want a turn: no pause is longer", err)
		}
	})
}

func TestARateMustBePositive(t *testing.T) {
	if _, err := pacing.New(t.Context(), pacing.Options{}); err == nil {
		t.Error("got nil; want an error")
	}
}

// cursorOf is the path of the only cursor in the folder.
func cursorOf(t *testing.T, dir string) string {
	t.Helper()
	all, _ := filepath.Glob(filepath.Join(dir, "pace-*"))
	all = slices.DeleteFunc(all, func(path string) bool { return strings.Contains(filepath.Base(path), ".") })
	if len(all) != 1 {
		t.Fatalf("got %v; want one cursor", all)
	}
	return all[0]
}

func TestAClockThatIsSetBackDelaysTheNextTurnByOneSpacing(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p := shared(t, dir, 1, time.Minute)
		if err := p.Pause(t.Context(), time.Now().Add(20*time.Second)); err != nil {
			t.Fatal(err)
		}
		// A day ago the same file comes from the future.
		ahead := time.Now().Add(24 * time.Hour)
		text := fmt.Appendf(nil, "%020d %020d %020d\n", ahead.UnixNano(), ahead.UnixNano(), ahead.Add(20*time.Second).UnixNano())
		if err := os.WriteFile(cursorOf(t, dir), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if waited, err := p.Wait(t.Context()); err != nil || waited > 21*time.Second {
			t.Errorf("got %v after %s; want a turn when the pause of 20 s is over", err, waited)
		}
		if waited, err := p.Wait(t.Context()); err != nil || waited != time.Second {
			t.Errorf("next: got %v after %s; want 1s", err, waited)
		}
	})
}

func FuzzADamagedCursorHoldsNobodyUp(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte("garbage"))
	f.Add([]byte("00000000000000000001 00000000000000000002 00000000000000000003\n"))
	f.Add([]byte("99999999999999999999 99999999999999999999 99999999999999999999\n more"))
	f.Add([]byte("-1 -1 9223372036854775807\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		synctest.Test(t, func(t *testing.T) {
			p := shared(t, dir, 1, 2*time.Hour)
			if err := os.WriteFile(cursorOf(t, dir), text, 0o600); err != nil {
				t.Fatal(err)
			}
			if waited, err := p.Wait(t.Context()); err != nil || waited > time.Hour+time.Second {
				t.Errorf("got %v after %s; want a turn within the longest pause", err, waited)
			}
			if waited, err := p.Wait(t.Context()); err != nil || waited != time.Second {
				t.Errorf("next: got %v after %s; want 1s", err, waited)
			}
		})
	})
}

func ExamplePacer_Wait() {
	p, err := pacing.New(context.Background(), pacing.Options{Rate: 1000})
	if err != nil {
		fmt.Println(err)
		return
	}
	start := time.Now()
	for range 3 {
		if _, err := p.Wait(context.Background()); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(time.Since(start) >= 2*time.Millisecond)
	// Output: true
}
