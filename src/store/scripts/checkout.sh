# Makes the tree of a commit from /mirror (read-only), with a .git that holds that commit and nothing else. No network.
#
# usage: checkout HASH PATH [UID:GID]       (whose the tree is, if not root's)
# Prints "tree HASH" and "time SECONDS" (the mtime that every file got). Exit status: 0; 21 no such commit; 22 our fault.
set -u
umask 022
commit=$1 top=/tree$2 owner=${3:-}
ours() { echo "$1" >&2; exit 22; }

git -C /mirror/repo.git cat-file -e "$commit^{commit}" || exit 21
mkdir -p "$top" && cd "$top" || ours "the tree's directory cannot be made"
git init -q . || ours "git init failed"
git fetch -q --depth=1 --no-tags --no-write-fetch-head file:///mirror/repo.git "$commit" || ours "the commit cannot be read from the mirror"
git checkout -q --detach "$commit" || ours "checkout failed"

# A commit made in this very second would share its time with what a patch writes: the past ends two seconds ago.
time=$(git show -s --format=%ct "$commit") now=$(date +%s)
[ "$time" -ge 0 ] 2>/dev/null || time=0
[ "$time" -le $((now - 2)) ] || time=$((now - 2))
find . -path ./.git -prune -o -print0 | xargs -0 touch -h -d "@$time" || ours "times cannot be set"
[ -z "$owner" ] || chown -Rh "$owner" . || ours "the tree cannot be given to its owner"
git update-index -q --refresh      # not clean is no error: line endings may differ from the commit by its own attributes
[ -z "$owner" ] || chown "$owner" .git/index || ours "the tree cannot be given to its owner"
tree=$(git rev-parse --verify -q "$commit^{tree}") || ours "the tree has no hash"
echo "tree $tree"
echo "time $time"
