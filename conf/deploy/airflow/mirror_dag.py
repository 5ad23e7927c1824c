"""An Airflow DAG that runs the mirror to the present end every 15 minutes, on a worker with /opt/mirror."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow import DAG
from airflow.operators.bash import BashOperator

# install.sh brings submit.sh, which starts the mirror on YARN. With a checkout and another Spark: spark-submit.sh.
COMMAND = "exec /opt/mirror/submit.sh /etc/mirror/mirror.yaml --once"

with DAG(
    dag_id="mirror",
    start_date=datetime(2026, 1, 1),
    schedule="*/15 * * * *",
    catchup=False,
    # A second run would be refused, or fence the first.
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
) as dag:
    # Exit code 0 is success; every other one fails the task. A task that is cancelled gets SIGTERM, and ends cleanly.
    BashOperator(task_id="mirror", bash_command=COMMAND)
