//! A process goes back in time and cannot tell. Without the usual harness, which runs tests in threads.
#![cfg_attr(not(target_arch = "x86_64"), allow(unused))]

#[cfg(target_arch = "x86_64")]
mod going_back {
    use std::{
        cell::Cell,
        collections::HashMap,
        hint::black_box,
        sync::{Mutex, mpsc},
        thread,
    };

    use testkit::rewind::{Arena, Rewind, Try, end, is_trying};

    #[global_allocator]
    static ARENA: Arena = Arena::new();

    static STATIC: Mutex<Vec<u32>> = Mutex::new(Vec::new());

    thread_local! {
        static LOCAL: Cell<u32> = const { Cell::new(5) };
    }

    #[expect(unsafe_code, reason = "only this program knows what it does")]
    fn prepare() -> std::io::Result<Rewind> {
        // SAFETY: it is the allocator, and no thread is started once this has succeeded.
        unsafe { Rewind::prepare(&ARENA) }
    }

    pub(crate) fn all() {
        a_process_with_two_threads_cannot_go_back();
        let rewind = prepare().expect("there is one thread now");
        assert!(prepare().is_err(), "there is one past at a time");
        everything_is_as_it_was(rewind);
        tries_can_be_within_tries(rewind);
        what_a_try_panics_with_can_be_told(rewind);
    }

    fn a_process_with_two_threads_cannot_go_back() {
        let (end, ended) = mpsc::channel::<()>();
        let other = thread::spawn(move || ended.recv().is_err());
        assert!(prepare().is_err());
        drop(end);
        assert!(other.join().expect("it only waits"));
    }

    /// More bytes than this program needs but within its tries.
    const LITTLE: usize = 150_000;

    /// What is on the stack, in the heap, static and of the thread.
    #[derive(Debug, PartialEq, Eq)]
    struct Seen {
        on_the_stack: [u32; 4],
        in_the_heap: HashMap<String, Vec<u32>>,
        in_statics: Vec<u32>,
        of_the_thread: u32,
    }

    fn everything_is_as_it_was(rewind: Rewind) {
        let mut array = black_box([1, 2, 3, 4]);
        let mut map = HashMap::from([("a".to_owned(), vec![1]), ("b".to_owned(), vec![2, 3])]);
        STATIC.lock().expect("nobody panics").push(7);
        let mut tries = 0;
        for round in 0..20 {
            let seen = |array: &[u32; 4], map: &HashMap<String, Vec<u32>>| Seen {
                on_the_stack: *array,
                in_the_heap: map.clone(),
                in_statics: STATIC.lock().expect("nobody panics").clone(),
                of_the_thread: LOCAL.get(),
            };
            let before = seen(&array, &map);
            match rewind.begin().expect("nothing is being tried") {
                Try::Begun => {
                    assert!(is_trying());
                    black_box(&mut array).fill(99);
                    map.clear();
                    map.extend((0..1_000).map(|number| (format!("key {number}"), vec![number; 50])));
                    STATIC.lock().expect("nobody panics").extend(0..10_000);
                    LOCAL.set(round);
                    assert!(ARENA.extent().1 > LITTLE, "{ARENA:?}");
                    deeper(500, round);
                }
                Try::Over(value) => {
                    assert_eq!((value, is_trying()), (round + 40, false));
                    assert_eq!(seen(&array, &map), before);
                    assert!(ARENA.extent().1 < LITTLE, "{ARENA:?}");
                    tries += 1;
                }
            }
            // What is done between two tries stays done.
            array[0] += 1;
            map.entry("a".to_owned()).or_default().push(round);
        }
        assert_eq!((tries, array[0], map["a"].len()), (20, 21, 21));
    }

    /// Ends the try far down on the stack.
    fn deeper(steps: u32, round: u32) -> u64 {
        let here = black_box([u64::from(steps); 32]);
        if steps == 0 {
            end(round + 40);
        }
        deeper(steps - 1, round) + here.iter().sum::<u64>()
    }

    fn tries_can_be_within_tries(rewind: Rewind) {
        let mut outer = black_box(1);
        let mut list = vec![1];
        match rewind.begin().expect("nothing is being tried") {
            Try::Begun => {
                outer += 1;
                list.push(2);
                for round in 0..3 {
                    match rewind.begin().expect("two are not too many") {
                        Try::Begun => {
                            *black_box(&mut outer) = 100;
                            black_box(&mut list).splice(.., [9; 1_000]);
                            end(round)
                        }
                        Try::Over(value) => assert_eq!((value, outer, &list[..2]), (round, 2 + round, &[1, 2][..])),
                    }
                    outer += 1;
                    list.push(round);
                }
                end(nested(rewind, 1))
            }
            Try::Over(value) => assert_eq!((value, outer, list), (4, 1, vec![1])),
        }
    }

    /// Begins tries within each other until that is refused, and counts them.
    fn nested(rewind: Rewind, depth: u32) -> u32 {
        match rewind.begin() {
            Ok(Try::Begun) => end(nested(rewind, depth + 1)),
            Ok(Try::Over(value)) => value,
            Err(_) => depth,
        }
    }

    fn what_a_try_panics_with_can_be_told(rewind: Rewind) {
        match rewind.begin().expect("nothing is being tried") {
            Try::Begun => {
                std::panic::set_hook(Box::new(|_| {}));
                let panicked = std::panic::catch_unwind(|| [0_u8; 1][black_box(1)]).is_err();
                end(u32::from(panicked))
            }
            Try::Over(value) => assert_eq!((value, thread::panicking()), (1, false)),
        }
    }
}

/// As much of a harness as is needed to be found.
fn main() {
    let told = |word: &str| std::env::args().any(|argument| argument == word);
    match (told("--list"), told("--ignored")) {
        (true, false) => println!("a_process_goes_back: test"),
        (true, true) => {}
        (false, _) => {
            #[cfg(target_arch = "x86_64")]
            going_back::all();
        }
    }
}
